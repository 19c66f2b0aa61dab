"""Updates that no example takes part in are paid for, and must not look like a loss of zero."""

import warnings

import keras
import numpy as np
import pytest

import tfdp
from tests.training.models import classifier, compiled, separable

X, Y = separable(40)
PLAN = tfdp.PrivacyPlan(40, 20, 4, 1.0, noise_multiplier=1.0, delta=1e-3)


def model(**kwargs):
    return compiled(classifier(), PLAN, metrics=["accuracy"], **kwargs)


@pytest.mark.parametrize(
    ("y", "weights"),
    [(Y + 5, None), (-1 - Y, None), (Y, np.full(40, np.nan))],
    ids=["above", "below", "weights"],
)
def test_labels_and_weights_that_are_all_out_of_range_are_rejected(y, weights):
    private = model()
    with pytest.raises(ValueError, match="None of the 40 examples has a usable target"):
        private.fit(X, y, sample_weight=weights, verbose=0)
    assert private.ledger.steps == 0


def test_one_example_decides_nothing_but_its_own_part():
    labels = Y + 5
    labels[-1] = 1
    private = model()
    with warnings.catch_warnings(record=True):
        private.fit(X, labels, verbose=0)
    assert private.ledger.steps == 4
    counts = private.privacy_report()["counts"]
    assert counts["examples_used"] <= 4 and counts["non_finite_examples"] > 0


def test_an_epoch_that_used_no_example_shows_no_loss_and_is_warned_of():
    private = model()
    with pytest.warns(UserWarning, match="No example was used in a whole epoch.* was not finite"):
        history = private.fit(X * np.nan, Y, epochs=1, verbose=0).history
    assert np.isnan(history["loss"]).all() and np.isnan(history["accuracy"]).all()
    assert np.isfinite(history["epsilon"]).all() and private.ledger.steps == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        history = private.fit(X, Y, epochs=1, verbose=0).history
    assert np.isfinite(history["loss"]).all()


def test_steps_that_draw_nothing_are_no_fault():
    plan = tfdp.PrivacyPlan(40, 1, 12, 1.0, noise_multiplier=1.0, delta=1e-3)
    private = compiled(classifier(), plan, seed=1)
    losses = []
    seen = keras.callbacks.LambdaCallback(on_epoch_end=lambda _, logs: losses.append(logs["loss"]))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        private.fit(X, Y, epochs=12, steps_per_epoch=1, verbose=0, callbacks=[seen])
    assert np.isfinite(losses).all() and losses.count(0.0) > 1  # 0.97 ** 40 of all steps


def test_a_custom_loss_is_not_tried_on_synthetic_outputs():
    def strict(y_true, y_pred):
        return keras.ops.sum(keras.ops.where(y_pred == 0.5, np.nan, y_pred), axis=-1)

    compiled(classifier(), PLAN, loss=strict).fit(X, Y, epochs=1, verbose=0)
