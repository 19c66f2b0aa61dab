"""Trains a captioner with differential privacy, from a config to a SavedModel.

    python -m launch.train_captioner --config=configs/quickstart.py --workdir=runs/quickstart

The same command again continues where the run stopped, or says that it is finished.
"""

from __future__ import annotations

import json
import math
from contextlib import nullcontext

import keras
import ml_collections
from absl import flags, logging
from ml_collections import config_flags

import tfdp
from launch._cli import check_config, fail, run_program
from launch._workdir import Workdir
from tfdp.captioner import export_captioner, run_results, run_setup
from tfdp.files import write_whole
from tfdp.training import (
    CheckpointEvery,
    ProgressBar,
    StopOnTerm,
    TrainingLog,
    is_first_worker,
)

_CONFIG = config_flags.DEFINE_config_file("config", None, "The run: configs/FILE.py[:argument].")
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of everything that the run writes.")
_STRATEGY = flags.DEFINE_enum(
    "strategy", "auto", tfdp.training.STRATEGIES, "How the work is spread over devices."
)

_SECTIONS = ("privacy", "model", "optimizer", "data", "initialization", "training", "evaluation")


def main(_: list[str]) -> None:
    config = _CONFIG.value
    check_config(config, *_SECTIONS)
    plan = tfdp.PrivacyPlan(**config.privacy.to_dict())
    strategy = tfdp.choose_strategy(_STRATEGY.value)
    data = run_setup.open_data(config)
    run_setup.check_run(config, data)
    workdir = Workdir(_WORKDIR.value)
    if config.training.seed is not None:
        keras.utils.set_random_seed(config.training.seed)  # of the first weights
    with strategy.scope():
        model = tfdp.make_private(run_setup.new_captioner(config, data.tokenizer))
        optimizer = run_setup.private_optimizer(config, plan)
    writes = is_first_worker(strategy)
    if writes:  # a mistake found above claims no folder
        workdir.claim(config, may_change=("evaluation",))
    with workdir.open_ledger(writes) as ledger:
        with strategy.scope():
            model.compile(
                optimizer,
                keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0),
                microbatch_size=config.training.microbatch_size,
                seed=config.training.seed,
                ledger=ledger,
            )
        counts = data.train.counts_kept_in(workdir.unreadable) if writes else nullcontext()
        with counts:  # of the training alone: what the probes read is not in the report
            finished = train(model, config, data, workdir)
        if not finished:  # no success, or a job that a cloud has stopped is not started again
            fail("stopped by a signal; the same command goes on from here.")
        if writes:
            write_results(model, config, data, workdir)


def train(
    model: keras.Model,
    config: ml_collections.ConfigDict,
    data: run_setup.CaptionData,
    workdir: Workdir,
) -> bool:
    """Makes the steps that the plan has left; returns whether it is now used up."""
    checkpoints = CheckpointEvery(model, workdir.checkpoints, config.training.checkpoint_seconds)
    restored = checkpoints.restore()
    counted, there = model.ledger.steps, int(model.optimizer.iterations.numpy())
    if counted and not restored:
        logging.warning(
            "There is no checkpoint to continue from: the weights are new, and the %d "
            "steps that the ledger holds stay spent.",
            counted,
        )
    if model.steps_left == 0:
        logging.info("All %d steps have been taken already: no more privacy is spent.", counted)
        return True
    if counted:
        logging.info(
            "Continuing: the ledger has %d steps, the weights have %d of them, %d are left.",
            counted,
            there,
            model.steps_left,
        )
    stop = StopOnTerm()
    logs = [TrainingLog(workdir.history), keras.callbacks.TensorBoard(workdir.path / "tensorboard")]
    evaluation = config.evaluation
    model.fit(
        data.train,
        steps_per_epoch=config.training.log_every,
        initial_epoch=there // config.training.log_every,
        validation_data=data.test,
        validation_batch_size=evaluation.batch_size,
        validation_steps=math.ceil(
            min(evaluation.examples, len(data.test)) / evaluation.batch_size
        ),
        validation_freq=evaluation.every,
        verbose=0,
        callbacks=[
            ProgressBar(),
            *(logs if is_first_worker(model.distribute_strategy) else ()),
            stop,
            checkpoints,
        ],
    )
    return not stop.stopped


def write_results(
    model: keras.Model,
    config: ml_collections.ConfigDict,
    data: run_setup.CaptionData,
    workdir: Workdir,
) -> None:
    """Writes report, metrics, figures and SavedModel; of the training data only probes read."""
    report = model.privacy_report(
        public=run_setup.public_data(config),
        bad_records=data.train.bad_records,
        truncated_captions=data.train.truncated_captions,
    )
    report.write_json(workdir.report)
    report.write_html(workdir.report_page)
    logging.info("Scoring %d held-out captions ...", len(data.test))
    losses = run_results.held_out_losses(model, data, config.evaluation.batch_size)
    accuracies = run_results.few_shot_accuracies(
        model,
        run_setup.new_captioner(config, data.tokenizer),
        data,
        shots=config.evaluation.shots,
        draws=config.evaluation.draws,
        examples=config.evaluation.probe_examples,
        batch_size=config.evaluation.batch_size,
    )
    metrics = {"caption_loss": losses, "few_shot": accuracies}
    write_whole(workdir.metrics, json.dumps(metrics, indent=2) + "\n")
    history = TrainingLog.read(workdir.history)
    run_results.draw_figures(
        model, data, workdir.figures, history, losses, delta=model.privacy.delta
    )
    logging.info("Exporting the SavedModel ...")
    # Counts are exact facts about private examples: they stay with whoever holds the data.
    released = {key: value for key, value in report.to_dict().items() if key != "counts"}
    export_captioner(
        model,
        data.tokenizer,
        workdir.saved_model,
        released,
        normalization=config.data.normalization,
    )
    print(report.summary_text())
    print(run_results.held_out_text(losses))
    print(f"Everything is in {workdir.path}")


if __name__ == "__main__":
    run_program(main)
