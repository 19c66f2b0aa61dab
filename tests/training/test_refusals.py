"""What would break the guarantee is refused before anything is spent, and the cure is named."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdp
from tests.training.models import classifier, compiled, separable
from tfdp.privacy import Ledger, PrivacyPlan, Segment, StepSettings, compose

FEATURES, LABELS = separable()


def plan(steps=4, noise=1.0):
    return PrivacyPlan(500, 50, steps, 1.0, noise_multiplier=noise, delta=1e-5)


class Batches(keras.utils.PyDataset):
    """A loader that forms batches itself, in an order or with weights of its own."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return FEATURES[:50], LABELS[:50]


def generator():
    while True:
        yield FEATURES[:50], LABELS[:50]


@pytest.mark.parametrize(
    ("data", "cure"),
    [
        (lambda: tf.data.Dataset.from_tensor_slices((FEATURES, LABELS)).shuffle(99), "ArraySource"),
        (generator, "__len__ and __getitem__"),
        (Batches, "__len__ and __getitem__"),
    ],
    ids=["shuffled", "generator", "batches"],
)
def test_a19_a20_c12_data_that_fit_cannot_sample_are_refused(data, cure):
    model = compiled(classifier(), plan())
    with pytest.raises(TypeError, match=cure):
        model.fit(data(), verbose=0)
    assert model.ledger.steps == 0


@pytest.mark.parametrize(
    ("arguments", "cure"),
    [
        ({"validation_split": 0.1}, "pass validation_data"),
        ({"class_weight": {0: 1.0, 1: np.nan}}, "must be a finite number"),
        ({"class_weight": {0: 1.0, 1: -2.0}}, "at least 0"),
        ({"class_weight": {0: 1.0}}, "no weight for the classes"),
        (
            {"steps_per_epoch": 0},
            "steps_per_epoch must be a whole .* 1, or None, got 0",
        ),
        (
            {"steps_per_epoch": -1},
            "steps_per_epoch must be a whole .* 1, or None, got -1",
        ),
        ({"epochs": 1.5}, "epochs must be a whole .* 1, or None, got 1.5"),
    ],
)
def test_c12_arguments_of_fit_that_cannot_be_are_refused(arguments, cure):
    model = compiled(classifier(), plan())
    with pytest.raises((TypeError, ValueError), match=cure):
        model.fit(FEATURES, LABELS, verbose=0, **arguments)
    assert model.ledger.steps == 0


@pytest.mark.parametrize("steps", [0, -1, 2.5, "auto", True])
def test_k8_steps_per_execution_must_be_a_number_of_updates(steps):
    with pytest.raises((TypeError, ValueError), match="steps_per_execution must be a whole"):
        compiled(classifier(), plan(), steps_per_execution=steps)


def test_k6_wrappers_around_a_private_optimizer_are_refused():
    wrapped = keras.optimizers.LossScaleOptimizer(tfdp.optimizers.DPSGD(1.0, privacy=plan()))
    with pytest.raises(TypeError, match="Do not wrap it"):
        compiled(classifier(), plan(), wrapped)


def test_averages_of_weights_are_taken_after_the_noise():
    """Moving averages are post-processing: the averaged weights move by what noisy ones do."""
    optimizer = tfdp.optimizers.DPSGD(
        1.0, privacy=plan(noise=5.0), use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=1
    )
    model = compiled(classifier(), plan(), optimizer)
    model.fit(FEATURES, LABELS, verbose=0)
    assert model.ledger.steps == 4
    assert model.ledger.segments()[0].settings.noise_multiplier == 5.0


def test_callbacks_that_choose_weights_by_private_metrics_are_warned_of(tmp_path):
    best = keras.callbacks.ModelCheckpoint(
        tmp_path / "best.keras", monitor="loss", save_best_only=True
    )
    with pytest.warns(UserWarning, match="ModelCheckpoint .* chooses weights by it"):
        compiled(classifier(), plan()).fit(FEATURES, LABELS, verbose=0, callbacks=[best])


def two_models_on_one_trunk():
    inputs = keras.Input((10,))
    trunk = keras.layers.Dense(6, name="trunk")
    return [keras.Model(inputs, keras.layers.Dense(2)(trunk(inputs))) for _ in range(2)]


class Resetting(keras.callbacks.Callback):
    """Puts its own weights into the model after every step."""

    def on_train_batch_end(self, batch, logs=None):
        self.model.trainable_variables[0].assign_add(
            keras.ops.ones_like(self.model.trainable_variables[0])
        )


def test_callbacks_that_change_weights_are_warned_of_once():
    model = compiled(classifier(), plan())
    with pytest.warns(UserWarning, match="changed weights between two steps") as found:
        model.fit(FEATURES, LABELS, steps_per_epoch=2, callbacks=[Resetting()], verbose=0)
    assert sum("between two steps" in str(w.message) for w in found) == 1


def test_callbacks_that_leave_the_weights_alone_are_not():
    model = compiled(classifier(), plan())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(FEATURES, LABELS, callbacks=[keras.callbacks.LambdaCallback()], verbose=0)


def test_two_models_that_share_weights_cannot_each_leave_out_the_others_updates():
    first, second = (compiled(model, plan()) for model in two_models_on_one_trunk())
    first.fit(FEATURES, LABELS, epochs=1, steps_per_epoch=2, verbose=0)
    with pytest.raises(ValueError, match="trunk/kernel.*compile both with one ledger"):
        second.fit(FEATURES, LABELS, verbose=0)
    assert second.ledger.steps == 0
    assert "trunk/kernel" in second.privacy_report()["notes"][-1]
    assert compose([first.ledger, second.ledger], 1e-5).segments == (Segment(plan().settings, 2),)

    second = compiled(second, plan(), seed=8)  # takes over what the trunk has cost
    assert second.ledger.steps == 2
    second.fit(FEATURES, LABELS, verbose=0)
    assert second.ledger.steps == 4
    assert "trunk/kernel" in first.privacy_report()["notes"][-1]
    with pytest.raises(ValueError, match="another ledger"):
        first.fit(FEATURES, LABELS, verbose=0)


def test_what_a_model_cost_outlives_it():
    first, second = two_models_on_one_trunk()
    compiled(first, plan()).fit(FEATURES, LABELS, verbose=0)
    del first
    assert compiled(second, plan()).ledger.steps == 4


def test_models_that_share_weights_and_a_ledger_go_on():
    ledger = Ledger()
    first, second = (
        compiled(model, plan(), ledger=ledger, seed=seed)
        for seed, model in enumerate(two_models_on_one_trunk())
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for model in (first, second):
            model.fit(FEATURES, LABELS, epochs=1, steps_per_epoch=2, verbose=0)
    assert ledger.steps == 4
    assert first.privacy_report()["notes"] == second.privacy_report()["notes"]


def test_b15_without_noise_the_planned_steps_are_still_a_wall():
    bare = plan(noise=0.0)
    other = Segment(StepSettings(500, 50, 1.0, 1.0), 3)
    assert bare.affordable_steps([other]) == 4
    assert bare.affordable_steps([other, Segment(bare.settings, 3)]) == 1
    assert bare.affordable_steps([other, Segment(bare.settings, 9)]) == 0
