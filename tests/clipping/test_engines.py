"""The other engines equal the loop too, and no layer named here needs a fallback.

Layers of one kind share a model; the other test modules take them one by one in a single pass.
"""

import warnings

import keras
import keras_hub
import pytest

from tests.clipping.models import floats, ids, perturbed
from tests.clipping.reference import check, class_loss, squared_error

layers = keras.layers


def convolutions():
    stack = [
        layers.Input((4, 4, 2)),
        layers.Conv2D(4, 2, strides=2, padding="same", activation="tanh"),
        layers.Conv2D(4, 2, groups=2, dilation_rate=2, padding="same"),
        layers.Conv2DTranspose(2, 2, strides=2),
        layers.DepthwiseConv2D(2, depth_multiplier=2),
        layers.SeparableConv2D(3, 2, activation="tanh"),
        layers.GroupNormalization(1),
        layers.Flatten(),
        layers.Dense(2),
    ]
    return perturbed(keras.Sequential(stack))


def attention():
    x, memory = layers.Input((4, 6)), layers.Input((3, 5))
    y = layers.RMSNormalization()(x)
    y = layers.MultiHeadAttention(2, 3)(y, memory) + y
    y = layers.GroupQueryAttention(3, 4, 2)(y, y, use_causal_mask=True)
    y = layers.LayerNormalization()(layers.EinsumDense("abc,cd->abd", (None, 6))(y))
    return perturbed(keras.Model([x, memory], layers.Dense(2)(y)))


def tied_with_lora():
    """A table that is read and multiplied by, and factors beside frozen weights."""
    x = layers.Input((4,), dtype="int32")
    embed = keras_hub.layers.TokenAndPositionEmbedding(7, 4, 4, tie_weights=True)
    lookup = layers.Embedding(7, 4)
    dense = layers.Dense(4, activation="tanh")
    einsum = layers.EinsumDense("abc,cd->abd", (None, 4))
    y = einsum(dense(embed(x) + lookup(x)))
    model = keras.Model(x, embed.token_embedding(y, reverse=True))
    for layer in (lookup, dense, einsum):
        layer.enable_lora(2)
    return perturbed(model)


CASES = {
    "convolutions": (convolutions, floats(3, 4, 4, 2), (3, 2), ["two_pass", "vectorized"]),
    "attention": (attention, [floats(3, 4, 6), floats(3, 3, 5)], (3, 4, 2), ["two_pass"]),
    "tied, with lora": (tied_with_lora, ids(3, 4, below=7), (3, 4), ["two_pass"]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_engines_equal_the_loop_without_a_fallback(name):
    build, x, targets, engines = CASES[name]
    classes = len(targets) < len(build().output_shape)
    y = ids(*targets, below=7, seed=1) if classes else floats(*targets, seed=1)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="exact but slower")
        check(build, x, y, class_loss if classes else squared_error, engines=engines)
