"""Labels that no output stands for: their records are left out and counted, wherever it runs."""

import keras
import numpy as np
import pytest

import tfdp
from tests.training.models import classifier, compiled, separable


@pytest.mark.parametrize(
    "settings",
    [{"jit_compile": True}, {"jit_compile": False}, {"jit_compile": False, "engine": "vectorized"}],
    ids=["compiled", "not compiled", "vectorized"],
)
def test_b5_impossible_labels_do_not_stop_a_run_and_contribute_nothing(settings):
    features, labels = separable(40)
    labels = labels.astype("int32")
    labels[[3, 7]] = 2, -1
    plan = tfdp.PrivacyPlan(40, 40, 2, 0.5, noise_multiplier=1.0, delta=1e-3)
    model = compiled(classifier(), plan, metrics=["accuracy"], **settings)
    history = model.fit(features, labels, verbose=0)
    assert model.ledger.updates == 2
    assert model.privacy_report()["counts"]["non_finite_examples"] == 2 * 2
    assert np.isfinite(history.history["loss"]).all()
    without = compiled(classifier(), plan, **settings)
    kept = np.delete(np.arange(40), [3, 7])
    with pytest.warns(UserWarning, match="num_examples"):
        without.fit(features[kept], labels[kept], verbose=0)
    for ours, theirs in zip(model.get_weights(), without.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_a8_impossible_labels_of_masked_tokens_change_nothing():
    loss = tfdp.clipping.per_example_loss(
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
    )
    logits = np.random.default_rng(0).normal(size=(3, 2, 4)).astype("float32")
    weight = np.array([[1, 1], [1, 1], [1, 0]], "float32")
    losses = loss(np.array([[1, -1], [9, 1], [2, 9]]), logits, weight).numpy()
    expected = -np.log(np.exp(logits[0, 0, 1]) / np.exp(logits[0, 0]).sum())
    assert losses[0] == pytest.approx(expected, rel=1e-5)
    assert np.isnan(losses[1]) and np.isfinite(losses[2])
