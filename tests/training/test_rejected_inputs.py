"""Data and arguments that would break the guarantee are rejected before anything is spent."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdp
from tests.training.models import classifier, compiled, separable
from tfdp.privacy import PrivacyPlan

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
def test_shuffled_batches_are_not_accounted_as_poisson(data, cure):
    """A19, A20, C12."""
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
def test_impossible_arguments_of_fit_are_rejected(arguments, cure):
    """C12."""
    model = compiled(classifier(), plan())
    with pytest.raises((TypeError, ValueError), match=cure):
        model.fit(FEATURES, LABELS, verbose=0, **arguments)
    assert model.ledger.steps == 0


@pytest.mark.parametrize("steps", [0, -1, 2.5, "auto", True])
def test_steps_per_execution_must_be_a_number_of_steps(steps):
    """K8."""
    with pytest.raises((TypeError, ValueError), match="steps_per_execution must be a whole"):
        compiled(classifier(), plan(), steps_per_execution=steps)


def test_wrappers_around_a_private_optimizer_are_rejected():
    """K6."""
    wrapped = keras.optimizers.LossScaleOptimizer(tfdp.optimizers.DPSGD(1.0, privacy=plan()))
    with pytest.raises(TypeError, match="Do not wrap it"):
        compiled(classifier(), plan(), wrapped)
