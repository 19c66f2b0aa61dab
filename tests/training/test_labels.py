"""Labels without an output, ids without a row, NaN: such examples are skipped and counted."""

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
def test_impossible_labels_do_not_stop_a_run_and_contribute_nothing(settings):
    """B5."""
    features, labels = separable(40)
    labels = labels.astype("int32")
    labels[[3, 7]] = 2, -1
    plan = tfdp.PrivacyPlan(40, 40, 2, 0.5, noise_multiplier=1.0, delta=1e-3)
    model = compiled(classifier(), plan, metrics=["accuracy"], **settings)
    history = model.fit(features, labels, verbose=0)
    assert model.ledger.steps == 2
    assert model.privacy_report()["counts"]["non_finite_examples"] == 2 * 2
    assert np.isfinite(history.history["loss"]).all()
    without = compiled(classifier(), plan, **settings)
    kept = np.delete(np.arange(40), [3, 7])
    with pytest.warns(UserWarning, match="num_examples"):
        without.fit(features[kept], labels[kept], verbose=0)
    for ours, theirs in zip(model.get_weights(), without.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize(
    ("layer", "settings"),
    [
        ("Embedding", {"jit_compile": True}),
        ("ReversibleEmbedding", {"jit_compile": False}),
        ("Embedding", {"jit_compile": False, "engine": "vectorized"}),
    ],
)
def test_ids_without_an_embedding_do_not_stop_a_run_and_contribute_nothing(settings, layer):
    """B5."""
    rng = np.random.default_rng(1)
    ids, targets = rng.integers(0, 9, (2, 40, 5)).astype("int32")
    ids[3, 1], ids[7, 4], ids[8, 0] = 9, -10, -9  # the last one is the first row, as in Keras
    plan = tfdp.PrivacyPlan(40, 40, 2, 0.5, noise_multiplier=1.0, delta=1e-3)

    def trained(rows):
        keras.utils.set_random_seed(0)
        inputs = keras.Input((5,), dtype="int32")
        table = getattr(keras.layers, layer)(9, 4)
        tied = {"reverse": True} if layer == "ReversibleEmbedding" else {}
        head = table if tied else keras.layers.Dense(9)
        net = keras.Model(inputs, head(keras.layers.Dense(4)(table(inputs)), **tied))
        model = compiled(net, plan, metrics=["accuracy"], **settings)
        history = model.fit(ids[rows], targets[rows], verbose=0).history
        return model, history["loss"]

    model, losses = trained(np.arange(40))
    assert model.ledger.steps == 2 and np.isfinite(losses).all()
    assert model.privacy_report()["counts"]["non_finite_examples"] == 2 * 2
    with pytest.warns(UserWarning, match="num_examples"):
        without, expected = trained(np.delete(np.arange(40), [3, 7]))
    assert losses == pytest.approx(expected, rel=1e-5)
    for ours, theirs in zip(model.get_weights(), without.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_impossible_labels_of_masked_tokens_change_nothing():
    """A8."""
    loss = tfdp.clipping.per_example_loss(
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
    )
    logits = np.random.default_rng(0).normal(size=(3, 2, 4)).astype("float32")
    weight = np.array([[1, 1], [1, 1], [1, 0]], "float32")
    losses = loss(np.array([[1, -1], [9, 1], [2, 9]]), logits, weight).numpy()
    expected = -np.log(np.exp(logits[0, 0, 1]) / np.exp(logits[0, 0]).sum())
    assert losses[0] == pytest.approx(expected, rel=1e-5)
    assert np.isnan(losses[1]) and np.isfinite(losses[2])


def test_metrics_skip_an_example_of_nan():
    """B5."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 4)).astype("float32"), rng.normal(size=(40, 1)).astype("float32")
    x[3, 0] = y[7, 0] = np.nan
    plan = tfdp.PrivacyPlan(40, 40, 1, 0.5, noise_multiplier=1.0, delta=1e-3)

    def history(x, y):
        keras.utils.set_random_seed(0)
        net = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model = compiled(net, plan, loss="mse", metrics=["mae"], weighted_metrics=["mse"])
        return model.fit(x, y, verbose=0).history

    kept = np.delete(np.arange(40), [3, 7])
    with pytest.warns(UserWarning, match="num_examples"):
        expected = history(x[kept], y[kept])
    assert history(x, y) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("loss", "targets", "message"),
    [
        ("mse", np.zeros((40, 3), "float32"), r"x of shape \(10,\) and y of shape \(3,\)"),
        ("mse", np.zeros(40, "float32"), r"'mse' .* y of shape \(40,\) .* \(40, 2\)"),
        ("mse", None, r"y of shape None"),
        ("categorical_crossentropy", np.zeros(40, "int32"), r"and y of shape \(\)"),
    ],
)
def test_targets_that_do_not_fit_the_outputs_are_rejected(loss, targets, message):
    features, _ = separable(40)
    plan = tfdp.PrivacyPlan(40, 40, 2, 0.5, noise_multiplier=1.0, delta=1e-3)
    model = compiled(classifier(), plan, loss=loss)
    with pytest.raises(ValueError, match=message):
        model.fit(features, targets, verbose=0)
    assert model.ledger.steps == 0
