"""Interrupted runs: what is counted, what is repeated, and what is not."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdp
from tests.training.models import classifier, compiled, separable
from tfdp.data import IndexableSource
from tfdp.privacy import Ledger
from tfdp.privacy.ledger import LedgerError
from tfdp.privacy.noise import NoiseKey
from tfdp.sampling import PoissonSampler
from tfdp.training import CheckpointEvery, TrainingLog

STEPS = 10


class StopAfter(keras.callbacks.Callback):
    def __init__(self, steps):
        super().__init__()
        self._steps = steps

    def on_train_batch_end(self, batch, logs=None):
        if self.model.optimizer.iterations.numpy() >= self._steps:
            self.model.stop_training = True


def run(folder, seed, stop=STEPS, checkpoint=True, rate=0.1, source=None, **options):
    """Trains from the folder's latest checkpoint until ``stop`` steps of the weights."""
    plan = tfdp.PrivacyPlan(500, 50, STEPS, 1.0, noise_multiplier=1.0, delta=1e-5, accountant="rdp")
    with Ledger(folder / "ledger.jsonl") as ledger:
        optimizer = tfdp.optimizers.DPAdam(rate, privacy=plan)
        model = compiled(classifier(), plan, optimizer, seed=seed, ledger=ledger, **options)
        saver = CheckpointEvery(model, folder / "checkpoints", seconds=1e9)
        restored = saver.restore()
        callbacks = [StopAfter(stop), *([saver] if checkpoint else [])]
        data = separable() if source is None else (source,)
        model.fit(*data, verbose=0, callbacks=callbacks)
        return model.get_weights(), ledger.steps, restored, model.privacy_report()


def test_a_seeded_run_stopped_and_resumed_equals_an_uninterrupted_one(tmp_path):
    """F2."""
    whole, counted, _, uninterrupted = run(tmp_path / "whole", seed=3)
    assert counted == STEPS
    run(tmp_path / "parts", seed=3, stop=4)
    parts, counted, restored, report = run(tmp_path / "parts", seed=3)
    assert restored and counted == STEPS
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(a, b)
    assert "fixed seed" in str(report["notes"])
    assert report["counts"] == uninterrupted["counts"]


def test_seeded_steps_lost_by_a_crash_are_repeated_as_the_same_release(tmp_path):
    whole, _, _, _ = run(tmp_path / "whole", seed=3)
    run(tmp_path / "crash", seed=3, stop=4)
    run(tmp_path / "crash", seed=3, stop=7, checkpoint=False)  # three steps never saved
    parts, counted, _, _ = run(tmp_path / "crash", seed=3)
    assert counted == STEPS
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 4},
        {"rate": 0.2},
        {"engine": "vectorized"},
        {"jit_compile": False},
        {"run_eagerly": True},
        {"loss_weights": [0.5]},
    ],
)
def test_seeded_steps_made_again_under_other_settings_are_counted_again(tmp_path, change):
    run(tmp_path, seed=3, stop=4)
    run(tmp_path, seed=3, stop=7, checkpoint=False)
    run(tmp_path, **{"seed": 3, **change})
    *_, before, last = Ledger.read(tmp_path / "ledger.jsonl").entries
    assert (last.first, last.steps) == (4, 3) and last.stream != before.stream


def test_seeded_steps_made_again_under_equal_settings_of_numpy_are_counted_once(tmp_path):
    run(tmp_path, seed=3, microbatch_size=64, stop=4)
    run(tmp_path, seed=3, microbatch_size=64, stop=7, checkpoint=False)
    run(tmp_path, seed=np.int64(3), microbatch_size=np.int32(64))
    assert len({entry.stream for entry in Ledger.read(tmp_path / "ledger.jsonl").entries}) == 1


def test_a_crash_before_the_first_checkpoint_finds_the_first_weights(tmp_path):
    class Crash(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise KeyboardInterrupt

    first = classifier().get_weights()
    plan = tfdp.PrivacyPlan(500, 50, STEPS, 1.0, noise_multiplier=1.0, delta=1e-5)
    model = compiled(classifier(), plan, seed=None)
    saver = CheckpointEvery(model, tmp_path, seconds=1e9)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*separable(), verbose=0, callbacks=[saver, Crash()])
    again = compiled(classifier(), plan, seed=None)
    again.set_weights([0 * w for w in first])
    assert CheckpointEvery(again, tmp_path).restore()
    for a, b in zip(first, again.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert again.ledger.steps == 0 and model.ledger.steps == 1


def test_steps_lost_by_a_crash_stay_counted_and_the_budget_is_a_wall(tmp_path):
    run(tmp_path, seed=None, stop=4)
    _, counted, _, _ = run(tmp_path, seed=None, stop=7, checkpoint=False)
    assert counted == 7
    _, counted, _, report = run(tmp_path, seed=None)
    assert counted == STEPS
    assert report["steps"] == STEPS
    with pytest.raises(ValueError, match="plan allows 10 steps.* spent all of it"):
        run(tmp_path, seed=None)


def test_a_step_that_cannot_be_entered_is_not_made(tmp_path):
    weights = []

    class TidyPerson(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            weights.append(self.model.get_weights())
            if len(weights) == 2:
                (tmp_path / "ledger.jsonl").unlink()

    plan = tfdp.PrivacyPlan(500, 500, STEPS, 1.0, noise_multiplier=1.0, delta=1e-5)
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        model = compiled(classifier(), plan, ledger=ledger)
        with pytest.raises(LedgerError, match="no step is made"):
            model.fit(*separable(), verbose=0, callbacks=[TidyPerson()])
    assert len(weights) == 2
    for entered, left in zip(weights[-1], model.get_weights(), strict=True):
        np.testing.assert_array_equal(entered, left)


def test_a_resumed_run_never_replays_noise(tmp_path):
    """F2."""
    first, _, _, _ = run(tmp_path / "a", seed=None, stop=1)
    second, _, _, _ = run(tmp_path / "b", seed=None, stop=1)
    assert max(np.abs(a - b).max() for a, b in zip(first, second, strict=True)) > 1e-3


def test_sampling_that_fit_does_not_execute_is_rejected_before_any_step():
    features, labels = separable()
    for kwargs, message in (
        ({"sampling": "none"}, "does not execute"),
        ({"sampling": "fixed_size", "num_examples": 600}, "fixed size"),
    ):
        settings = {"num_examples": 500, "batch_size": 50, "noise_multiplier": 1.0, **kwargs}
        plan = tfdp.PrivacyPlan(steps=2, clip_norm=1.0, delta=1e-5, **settings)
        model = compiled(classifier(), plan)
        with pytest.raises(ValueError, match=message):
            model.fit(features, labels, verbose=0)
        assert model.ledger.steps == 0


def test_the_log_of_a_killed_run_loses_no_line_but_the_one_that_was_cut(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_text('{"step": 2, "loss": 0.5}\n{"step": 4, "lo')
    plan = tfdp.PrivacyPlan(500, 50, 2, 1.0, noise_multiplier=1.0, delta=1e-5)
    model = compiled(classifier(), plan)
    model.fit(*separable(), verbose=0, callbacks=[TrainingLog(path)])
    assert [entry["step"] for entry in TrainingLog.read(path)] == [2, 2]


def test_checkpoints_of_an_earlier_run_are_not_trained_past(tmp_path):
    run(tmp_path, seed=None, stop=4)
    plan = tfdp.PrivacyPlan(500, 50, STEPS, 1.0, noise_multiplier=1.0, delta=1e-5)
    model = compiled(classifier(), plan)
    saver = CheckpointEvery(model, tmp_path / "checkpoints")
    with pytest.raises(ValueError, match=r"Call restore\(\) before fit"):
        model.fit(*separable(), verbose=0, callbacks=[saver])
    assert model.ledger.steps == 0
    saver.restore()
    assert model.ledger.steps == 4


def test_a_ledger_file_that_lacks_what_a_checkpoint_knows_is_rejected(tmp_path):
    run(tmp_path, seed=None, stop=4)
    (tmp_path / "ledger.jsonl").unlink()
    with pytest.raises(LedgerError, match="lacks 4 steps"):
        run(tmp_path, seed=None)


def bad_in_part():
    """The examples of ``separable``, every seventh of which is not as declared."""
    x, y = separable()
    examples = [(x[i][: 10 - (i % 7 == 0)], y[i]) for i in range(len(x))]
    spec = (tf.TensorSpec([10]), tf.TensorSpec([], tf.int32))
    return IndexableSource(examples, element_spec=spec)


def counted(folder, **kwargs):
    source = bad_in_part()
    with source.counts_kept_in(folder / "unreadable.jsonl"):
        run(folder, seed=3, source=source, **kwargs)
    return source.bad_records


def test_a_run_stopped_twice_and_resumed_counts_the_unreadable_examples_of_a_single_one(tmp_path):
    """One of the stops takes steps away; the single run reads nothing that it does not draw."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    sampler = PoissonSampler(500, 0.1, NoiseKey.from_seed(3).child("sampling").as_int())
    drawn = {int(i) for step in range(STEPS) for i in sampler.indices(step)}
    padding = {0}
    expected = {"wrong_shape": sum(i % 7 == 0 for i in drawn | padding)}
    assert 30 < expected["wrong_shape"] < 72  # of all
    whole.mkdir()
    assert counted(whole) == expected
    parts.mkdir()
    assert counted(parts, stop=2)["wrong_shape"] < expected["wrong_shape"]
    counted(parts, stop=4, checkpoint=False)
    assert counted(parts) == expected
