"""A6: the norm of a weight used twice is that of the summed gradient."""

import keras
import numpy as np
import pytest

from tests.clipping.models import clipped, floats, ids, perturbed
from tests.clipping.reference import check
from tfdp.clipping import UnsupportedLayerError

layers = keras.layers


def take_output(y_true, y_pred):
    """The loss is the output itself, whatever the target."""
    return keras.ops.sum(y_pred, axis=-1)


@pytest.mark.parametrize("engine", ["single_pass", "vectorized"])
@pytest.mark.parametrize("second, norm", [(3.0, 6.0), (-3.0, 0.0)])
def test_per_use_gradients_add_up_before_the_norm(engine, second, norm):
    """A6."""
    shared = layers.Dense(1, use_bias=False)
    x, z = layers.Input((1,)), layers.Input((1,))
    model = keras.Model([x, z], shared(x) + shared(z))
    inputs = [np.full((2, 1), 3.0, "float32"), np.full((2, 1), second, "float32")]
    found = clipped(model, take_output, inputs, np.zeros((2, 1)), clip_norm=1.0, engine=engine)
    np.testing.assert_allclose(found.norms, [norm, norm], atol=1e-6)
    np.testing.assert_allclose(found.gradients[0], [[2.0 * min(norm, 1.0)]], atol=1e-6)


def test_a_layer_called_three_times():
    def build():
        x = layers.Input((6,), dtype="int32")
        embed, dense, norm = layers.Embedding(5, 4), layers.Dense(4), layers.LayerNormalization()
        y = embed(x)
        for _ in range(3):
            y = norm(y + dense(y))
        return perturbed(keras.Model(x, y))

    check(build, ids(3, 6, below=5), floats(3, 6, 4))


def test_an_embedding_read_by_two_inputs():
    def build():
        x, z = layers.Input((3,), dtype="int32"), layers.Input((5,), dtype="int32")
        embed = layers.Embedding(4, 2)
        y = layers.Concatenate(axis=1)([embed(x), embed(z)])
        return keras.Model([x, z], layers.Dense(2)(y))

    check(build, [ids(3, 3, below=4), ids(3, 5, below=4)], floats(3, 8, 2))


class Tied(keras.Model):
    """Reads the embedding's table outside of the layer."""

    def __init__(self):
        super().__init__()
        self.embed = layers.Embedding(7, 4, name="table")

    def call(self, x):
        return keras.ops.matmul(self.embed(x), keras.ops.transpose(self.embed.embeddings))


def built_tied():
    model = Tied()
    model(ids(1, 5, below=7))
    return model


def test_a_weight_read_outside_of_its_layer_is_still_exact():
    check(built_tied, ids(3, 5, below=7), floats(3, 5, 7), engines=["auto", "vectorized"])


def test_a_weight_read_outside_of_its_layer_is_named():
    with pytest.raises(UnsupportedLayerError, match="table"):
        clipped(built_tied(), "mse", ids(3, 5, below=7), floats(3, 5, 7), engine="single_pass")
