"""Trains a captioner with differential privacy, from a config to a SavedModel.

    python -m launch.train_captioner --config=configs/quickstart.py --workdir=runs/quickstart

The same command again goes on where the run stopped, or says that it is finished.
"""

from __future__ import annotations

import math
from contextlib import nullcontext

import keras
import ml_collections
from absl import flags, logging
from ml_collections import config_flags

import tfdp
from launch import _captioner_results as results
from launch import _captioner_setup as setup
from launch._captioner_checks import check_run
from launch._cli import check_config, fail, run_program
from launch._workdir import Workdir
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


def main(_: list[str]) -> None:
    config = _CONFIG.value
    check_config(config, *setup.SECTIONS)
    plan = setup.make_plan(config)
    strategy = tfdp.choose_strategy(_STRATEGY.value)
    data = setup.load_data(config)
    check_run(config, data)
    workdir = Workdir(_WORKDIR.value)
    if config.training.seed is not None:
        keras.utils.set_random_seed(config.training.seed)  # of the first weights
    with strategy.scope():
        model = setup.make_model(config, data.tokenizer)
        optimizer = setup.make_optimizer(config.optimizer, plan)
    writes = is_first_worker(strategy)
    if writes:  # a mistake found above claims no folder
        workdir.claim(config, may_change=("evaluation",))
    with workdir.open_ledger(writes) as ledger:
        with strategy.scope():
            setup.compile_model(model, optimizer, config.training, ledger)
        checkpoints = CheckpointEvery(
            model, workdir.checkpoints, config.training.checkpoint_seconds
        )
        if not checkpoints.restore() and model.ledger.steps:
            logging.warning(
                "There is no checkpoint to go on from: the weights are new ones, and the %d "
                "steps that the ledger holds stay spent.",
                model.ledger.steps,
            )
        counts = data.train.counts_kept_in(workdir.unreadable) if writes else nullcontext()
        with counts:  # of the training alone: what the probes read is not in the report
            finished = train(model, config, data, workdir, checkpoints)
        if not finished:  # no success, or a job that a cloud has stopped is not started again
            fail("stopped by a signal; the same command goes on from here.")
        if not writes:
            return
        report, metrics = results.write_all(model, config, data, workdir)
        print(report.summary_text())
        print(results.held_out_text(metrics))
        print(f"Everything is in {workdir.path}")


def train(
    model: keras.Model,
    config: ml_collections.ConfigDict,
    data: setup.Data,
    workdir: Workdir,
    checkpoints: CheckpointEvery,
) -> bool:
    """Makes the steps that the plan has left; returns whether it is now used up."""
    counted, there = model.ledger.steps, int(model.optimizer.iterations.numpy())
    if model.steps_left == 0:
        logging.info("All %d steps have been made: no privacy is spent.", counted)
        return True
    if counted:
        logging.info(
            "Going on: %d steps are counted, the weights have %d of them, %d are left.",
            counted,
            there,
            model.steps_left,
        )
    stop = StopOnTerm()
    logs = [TrainingLog(workdir.history), keras.callbacks.TensorBoard(workdir.path / "tensorboard")]
    model.fit(
        data.train,
        steps_per_epoch=config.training.log_every,
        initial_epoch=there // config.training.log_every,
        validation_data=data.test,
        validation_batch_size=config.evaluation.batch_size,
        validation_steps=math.ceil(
            min(config.evaluation.examples, len(data.test)) / config.evaluation.batch_size
        ),
        validation_freq=config.evaluation.every,
        verbose=0,
        callbacks=[
            ProgressBar(),
            *(logs if is_first_worker(model.distribute_strategy) else ()),
            stop,
            checkpoints,
        ],
    )
    return not stop.stopped


if __name__ == "__main__":
    run_program(main)
