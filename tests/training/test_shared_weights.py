"""What private models that share weights have spent on them."""

import warnings

import keras
import pytest

from tests.training.models import compiled, separable
from tfdp.privacy import Ledger, PrivacyPlan, Segment, compose

FEATURES, LABELS = separable()


def plan(steps=4, noise=1.0):
    return PrivacyPlan(500, 50, steps, 1.0, noise_multiplier=noise, delta=1e-5)


def two_models_on_one_trunk():
    inputs = keras.Input((10,))
    trunk = keras.layers.Dense(6, name="trunk")
    return [keras.Model(inputs, keras.layers.Dense(2)(trunk(inputs))) for _ in range(2)]


def test_two_models_that_share_weights_cannot_each_omit_the_others_steps():
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


def test_what_was_spent_on_weights_outlives_the_model():
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
