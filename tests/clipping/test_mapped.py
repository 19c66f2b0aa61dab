"""Layers without a rule: their call is mapped over examples, the rest stays in one pass."""

import warnings

import keras
import numpy as np
import pytest

from tests.clipping.models import clipped, floats, ids, perturbed
from tests.clipping.reference import check, squared_error
from tfdp.clipping import UnsupportedLayerError

layers, ops = keras.layers, keras.ops


class ClassToken(layers.Layer):
    """Own weight of shape [1, 1, D], repeated over the batch."""

    def build(self, shape):
        self.token = self.add_weight(shape=(1, 1, shape[-1]), initializer="normal")

    def call(self, x):
        token = ops.broadcast_to(self.token, (ops.shape(x)[0], 1, x.shape[-1]))
        return ops.concatenate([token, x], axis=1)


class Positions(layers.Layer):
    """Own weight of shape [1, T, D], broadcast over the batch; the scale sits in a sublayer."""

    def build(self, shape):
        self.table = self.add_weight(shape=(1, *shape[1:]), initializer="normal")
        self.dense = layers.Dense(shape[-1])
        self.dense.build(shape)

    def call(self, x):
        return self.dense(x + self.table) * self.table


class PatchEncoder(layers.Layer):
    """Positions [T], without a batch axis: the embedding's rule cannot tell examples apart."""

    def __init__(self, length, **kwargs):
        super().__init__(**kwargs)
        self.length = length
        self.project = layers.Dense(4)
        self.positions = layers.Embedding(length, 4)

    def call(self, x):
        return self.project(x) + self.positions(ops.arange(self.length))


class Powers(layers.Layer):
    """Its second output is computed from the first, which it returns twice."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="normal")

    def call(self, x):
        first = ops.tanh(x * self.scale)
        return [first, first * self.scale, first]


class ScaledSequence(layers.Layer):
    """A weight of its own before a loop whose weights have a rule."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")
        self.sequence = layers.SimpleRNN(3)
        self.sequence.build(shape)

    def call(self, x):
        return self.sequence(x * self.scale)


class Scaled(layers.Dense):
    """A subclass that overrides call is not covered by the rule of its base."""

    def call(self, x):
        return 2.0 * super().call(x)


class WithToken(keras.Model):
    """A weight of the model itself, beside layers with rules."""

    def __init__(self):
        super().__init__()
        self.scale = self.add_weight(shape=(4,), initializer="normal")
        self.hidden, self.head = layers.Dense(4), layers.Dense(2)

    def call(self, x):
        return self.head(ops.tanh(self.hidden(x * self.scale)) * self.scale)


def sequential(*make, shape):
    def build():
        return perturbed(keras.Sequential([layers.Input(shape), *(m() for m in make)]))

    return build


def subclassed():
    model = WithToken()
    model(floats(1, 3, 4))
    return model


CASES = {
    "class token": sequential(ClassToken, lambda: layers.Dense(2), shape=(3, 4)),
    "positions [1, T, D]": sequential(Positions, lambda: layers.Dense(2), shape=(3, 4)),
    "positions [T]": sequential(lambda: PatchEncoder(3), lambda: layers.Dense(2), shape=(3, 4)),
    "overridden call": sequential(lambda: Scaled(5), lambda: layers.Dense(2), shape=(3, 4)),
    "weight of the model": subclassed,
    "gru that resets before": sequential(lambda: layers.GRU(2, reset_after=False), shape=(3, 4)),
    "stacked cells": sequential(
        lambda: layers.RNN([layers.LSTMCell(2), layers.GRUCell(3)]), shape=(3, 4)
    ),
    "weight before a loop": sequential(ScaledSequence, shape=(3, 4)),
    "unrolled": sequential(lambda: layers.GRU(2, reset_after=False, unroll=True), shape=(3, 4)),
    "outputs made of one another": sequential(
        Powers, lambda: layers.Concatenate(), lambda: layers.Dense(2), shape=(3, 4)
    ),
    "loop called several times": sequential(
        lambda: layers.TimeDistributed(layers.GRU(2, reset_after=False)), shape=(3, 2, 4)
    ),
    "time distributed": sequential(
        lambda: layers.TimeDistributed(layers.Dense(5)), shape=(3, 2, 4)
    ),
}


@pytest.mark.parametrize("build", CASES.values(), ids=CASES.keys())
@pytest.mark.filterwarnings("ignore:No rule for")
def test_equals_the_loop(build):
    x = floats(4, *getattr(build(), "input_shape", (None, 3, 4))[1:])
    check(build, x, floats(*build()(x).shape, seed=1), engines=["auto"])


@pytest.mark.filterwarnings("ignore:No rule for")
@pytest.mark.parametrize("name", ["stacked cells", "positions [T]", "weight before a loop"])
def test_equals_the_loop_under_xla(name):
    build = CASES[name]
    x = floats(4, 3, 4)
    check(build, x, floats(*build()(x).shape, seed=1), engines=["auto"], jit_compile=True)


@pytest.mark.filterwarnings("ignore:No rule for")
def test_masked_sequences():
    def build():
        x = layers.Input((5,), dtype="int32")
        y = layers.Embedding(6, 4, mask_zero=True)(x)
        y = layers.GRU(3, reset_after=False)(y)
        return keras.Model(x, layers.Dense(2)(y))

    x = ids(4, 5, below=6)
    x[:, 3:] = 0
    check(build, x, floats(4, 2), engines=["auto"])


def test_one_line_names_the_layer_and_its_weights():
    """C20."""
    model = CASES["gru that resets before"]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clipped(model, squared_error, floats(2, 3, 4), floats(2, 2))
    lines = [str(w.message) for w in caught if "No rule for" in str(w.message)]
    assert len(lines) == 1 and "\n" not in lines[0]
    assert "GRU 'gru" in lines[0] and "recurrent_kernel" in lines[0]


def test_the_single_pass_engine_rejects_by_name():
    with pytest.raises(UnsupportedLayerError, match="GRU 'gru"):
        model = CASES["gru that resets before"]()
        clipped(model, squared_error, floats(2, 3, 4), floats(2, 2), engine="single_pass")


class Noisy(layers.Layer):
    """Own weights, a sublayer with a rule, and dropout in between."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")
        self.drop, self.dense = layers.Dropout(0.5), layers.Dense(3)
        self.dense.build(shape)

    def call(self, x, training=None):
        return self.dense(self.drop(x * self.scale, training=training))


@pytest.mark.filterwarnings("ignore:No rule for")
def test_dropout_inside_draws_the_same_mask_both_times():
    """With loss = sum(outputs) the gradient of the scale is (mask * 2) @ kernel sums."""
    model = keras.Sequential([layers.Input((50,)), Noisy()])
    x = np.ones((3, 50), "float32")
    found = clipped(model, lambda t, p: ops.sum(p, axis=-1), x, np.zeros((3, 3)), clip_norm=1e9)
    kernel = model.layers[0].dense.kernel.numpy()
    for row in range(3):
        alone = clipped(
            model, lambda t, p: ops.sum(p, axis=-1), x, np.zeros((3, 3)), clip_norm=1e9,
            mask=np.arange(3) == row,
        )  # fmt: skip
        scale, dense, _ = alone.gradients
        kept = np.abs(dense.numpy()[:, 0]) > 0  # the dense layer saw these inputs
        expected = np.where(kept, 2.0, 0.0) * kernel.sum(1)
        np.testing.assert_allclose(scale, expected, rtol=1e-5)
        assert float(alone.losses[row]) == pytest.approx(expected.sum(), rel=1e-4)
    assert len(set(found.losses.numpy())) == 3


class Rounds(layers.Layer):
    """A loop that might go on for any number of rounds."""

    def build(self, shape):
        self.inner = layers.Dense(shape[-1], activation="tanh")
        self.inner.build(shape)

    def call(self, inputs):
        return keras.ops.fori_loop(0, 3, lambda i, x: self.inner(x) + inputs, inputs)


@pytest.mark.parametrize("engine", ["auto", "vectorized"])
@pytest.mark.filterwarnings("ignore:No rule for")
def test_loops_that_xla_cannot_differentiate_run_without_it(engine):
    build = sequential(Rounds, lambda: layers.Dense(2), shape=(4,))
    with pytest.warns(UserWarning, match="not compiled by XLA.*maximum_iterations"):
        check(build, floats(4, 4), floats(4, 2, seed=1), engines=[engine], jit_compile=True)
