"""Keras's image layers keep the examples of a batch apart, or are rejected by name."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.clipping.models import clipped, floats
from tests.clipping.reference import squared_error
from tfdp.clipping import Batch, ClippedGradient, UnsupportedLayerError, per_example_loss
from tfdp.clipping.patched_layers import image_layers_of, images_kept_apart

layers = keras.layers


def pictures(count=5, shape=(6, 7, 3), top=255, seed=0):
    """Whole numbers whose range differs from example to example; the last is of one shade."""
    generator = np.random.default_rng(seed)
    found = [generator.integers(0, top * (i + 2) // (count + 1), shape) for i in range(count - 1)]
    return np.stack([*found, np.full(shape, top // 2)]).astype("float32")


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize(
    ("options", "scale"),
    [
        ({}, 1.0),
        ({"value_range": (0, 1)}, 1 / 255),
        ({"value_range": (-1, 1), "bins": 32}, 1 / 255),
        ({"data_format": "channels_first"}, 1.0),
    ],
)
def test_equalization_of_a_batch_is_that_of_its_examples_one_by_one(options, scale, jit_compile):
    layer, x = layers.Equalization(**options), pictures() * scale
    model = Holds(layer)
    alone = np.concatenate([layer(x[i : i + 1], training=True) for i in range(len(x))])

    @tf.function(jit_compile=jit_compile, autograph=False)
    def of_batch(images):
        with images_kept_apart(image_layers_of(model)):
            return layer(images, training=True)

    np.testing.assert_allclose(of_batch(x), alone, atol=1e-5 * np.abs(alone).max())
    assert np.abs(layer(x, training=True) - alone).max() > 0.1 * scale  # Keras's own mixes


def picks_equalization():
    layer = layers.RandAugment()
    layer._AUGMENT_LAYERS = ["equalization"]
    return layer


class Holds(keras.Model):
    """A subclassed model, in which nothing is known of the way through its layers."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.rest = keras.Sequential([layers.Rescaling(1 / 255), layers.Flatten(), layers.Dense(2)])

    def call(self, x, training=False):
        return self.rest(self.layer(x, training=training))


def around(layer, subclassed, shape=(6, 7, 3)):
    if not subclassed:
        rest = [layers.Rescaling(1 / 255), layers.Flatten(), layers.Dense(2)]
        model = keras.Sequential([layers.Input(shape), layer, *rest])
    else:
        model = Holds(layer)
        model(np.zeros((1, *shape), "float32"))
    model.trainable_variables[0].assign(floats(*model.trainable_variables[0].shape))
    return model


@pytest.mark.parametrize(
    ("make", "subclassed", "engine"),
    [
        (layers.Equalization, True, "auto"),
        (layers.Equalization, True, "two_pass"),
        (layers.Equalization, True, "vectorized"),
        (picks_equalization, True, "auto"),
        (picks_equalization, False, "single_pass"),
    ],
)
def test_replacing_an_example_moves_the_clipped_sum_by_at_most_twice_the_clip_norm(
    make, subclassed, engine
):
    """Fault F1: a picture of 255s in the place of a dark one moved the sum by 13.68 C."""
    dark = np.zeros((21, 6, 7, 3), "float32")
    dark[:, 0, 0] = 200
    bright = dark.copy()
    bright[-1] = 255
    y = np.tile([[1.0, 0.0]], (21, 1)).astype("float32")
    model = around(make(), subclassed)
    function = ClippedGradient(
        model, per_example_loss(squared_error), 1e-3, engine=engine, jit_compile=False
    )
    values = [
        [v.value for v in own] for own in (function.forward.trainable, function.forward.state)
    ]
    mask, seed = tf.ones([21], tf.bool), tf.constant([1, 2])
    sums = [
        function(*values, Batch(tf.constant(x), tf.constant(y), None, mask, seed)).sums
        for x in (dark, bright)
    ]
    moved = np.sqrt(sum(np.sum((a - b) ** 2) for a, b in zip(*sums, strict=True)))
    assert moved <= 2e-3 * (1 + 1e-5)


@pytest.mark.parametrize("engine", ["auto", "single_pass", "two_pass", "vectorized"])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.AugMix(name="guilty"), "AugMix 'guilty' picks .*data pipeline"),
        (lambda: layers.MixUp(name="guilty"), "MixUp 'guilty' combines every example"),
        (lambda: layers.CutMix(name="guilty"), "CutMix 'guilty' combines every example"),
    ],
)
def test_layers_that_join_examples_or_pick_once_are_rejected_by_name(make, message, engine):
    with pytest.raises(UnsupportedLayerError, match=message):
        clipped(around(make(), True), squared_error, pictures(), floats(5, 2), engine=engine)


@pytest.mark.parametrize("engine", ["auto", "vectorized"])
def test_a_batch_that_an_image_layer_takes_for_one_image_is_rejected(engine):
    """RandomFlip turns over the axis of the batch for inputs [B, H, W]."""
    model = around(layers.RandomFlip(name="guilty"), False, shape=(6, 3))
    with pytest.raises(UnsupportedLayerError, match="RandomFlip 'guilty' takes inputs of rank 3"):
        clipped(model, squared_error, floats(4, 6, 3), floats(4, 2), engine=engine)
