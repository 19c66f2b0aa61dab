"""The loss of training and the loss of validation are one quantity."""

import keras
import numpy as np
import pytest

import tfdp
from tests.training.models import compiled

ROWS, TOKENS, CLASSES = 30, 6, 4
PLAN = tfdp.PrivacyPlan(ROWS, ROWS, 1, 1.0, noise_multiplier=0.0, delta=1e-3)
TOKEN_LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)


def texts():
    """Ids of several lengths, 0 behind their ends, and inputs by token."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, TOKENS, 3)).astype("float32")
    y = rng.integers(1, CLASSES, (ROWS, TOKENS))
    y[np.arange(TOKENS) >= rng.integers(1, TOKENS + 1, (ROWS, 1))] = 0
    return x, y


def net():
    keras.utils.set_random_seed(3)
    x = keras.Input((TOKENS, 3))
    return keras.Model(x, keras.layers.Dense(CLASSES, name="tokens")(x))


def by_example(model, x, y):
    """Mean over examples of each one's mean over real tokens, and the mean over all tokens."""
    nll = -np.log(keras.ops.softmax(model(x)).numpy())
    nll = np.take_along_axis(nll, y[..., None], -1)[..., 0]
    real = y > 0
    return ((nll * real).sum(1) / real.sum(1)).mean(), nll[real].mean()


def test_both_curves_average_within_examples_first():
    x, y = texts()
    model = compiled(net(), PLAN, tfdp.optimizers.DPSGD(0.5, privacy=PLAN), TOKEN_LOSS)
    before, by_token = by_example(model, x, y)
    assert abs(by_token / before - 1) > 1e-3, "they would be one number anyway"
    # 7 rows at a time and 2 at last: all examples count the same.
    history = model.fit(x, y, validation_data=(x, y), validation_batch_size=7, verbose=0).history
    after, by_token = by_example(model, x, y)
    assert history["loss"] == pytest.approx([before], rel=1e-5)
    assert history["val_loss"] == pytest.approx([after], rel=1e-5)
    assert abs(by_token / after - 1) > 1e-3
    assert model.evaluate(x, y, batch_size=11, verbose=0) == pytest.approx(after, rel=1e-5)


def test_losses_of_several_outputs_keep_their_weights_and_names():
    x = np.random.default_rng(1).normal(size=(ROWS, 3)).astype("float32")
    y = {"a": x[:, :1], "b": x[:, 1:]}

    def two_heads():
        keras.utils.set_random_seed(4)
        features = keras.Input((3,))
        heads = {k: keras.layers.Dense(n, name=k)(features) for k, n in (("a", 1), ("b", 2))}
        return keras.Model(features, heads)

    settings = {"loss": {"a": "mse", "b": "mae"}, "loss_weights": {"a": 2.0, "b": 0.5}}
    plain = two_heads()
    plain.compile("sgd", **settings)
    model = compiled(two_heads(), PLAN, **settings)
    expected = plain.evaluate(x, y, batch_size=7, verbose=0, return_dict=True)
    assert set(expected) == {"loss", "a_loss", "b_loss"}
    found = model.evaluate(x, y, batch_size=7, verbose=0, return_dict=True)
    assert found == pytest.approx(expected, rel=1e-5)
    history = model.fit(x, y, validation_data=(x, y), verbose=0).history
    # No zeros where nothing was computed.
    assert set(history) == {"loss", "epsilon", "val_loss", "val_a_loss", "val_b_loss"}


def test_a_model_is_saved_with_the_loss_that_it_was_given(tmp_path):
    """Which Keras alone then evaluates by its own habit."""
    x, y = texts()
    model = compiled(net(), PLAN, loss=TOKEN_LOSS)
    model.fit(x, y, verbose=0)
    model.save(tmp_path / "model.keras")
    plain = keras.models.load_model(tmp_path / "model.keras")
    assert isinstance(plain.loss, keras.losses.SparseCategoricalCrossentropy)
    by_token = by_example(model, x, y)[1]
    assert plain.evaluate(x, y, batch_size=ROWS, verbose=0) == pytest.approx(by_token, rel=1e-5)
