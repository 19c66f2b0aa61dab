"""The engines equal a loop over single examples, layer by layer."""

import keras
import numpy as np
import pytest

from tests.clipping.reference import check, class_loss

layers = keras.layers
rng = np.random.default_rng(0)


def floats(*shape):
    return rng.normal(size=shape).astype("float32")


def ids(*shape, below):
    return rng.integers(0, below, shape).astype("int32")


def model_of(*stack, shape, dtype=None):
    """A function that builds a sequential model from functions that build its layers."""

    def build():
        model = keras.Sequential([layers.Input(shape, dtype=dtype), *(make() for make in stack)])
        for weight in model.trainable_variables:  # biases and scales are not at 0 and 1
            noise = np.random.default_rng(len(weight.path)).normal(size=weight.shape)
            weight.assign(weight + 0.2 * noise)
        return model

    return build


@pytest.mark.parametrize("shape", [(5,), (7, 5), (2, 3, 5)])
@pytest.mark.parametrize("activation", [None, "relu"])
def test_dense(shape, activation):
    build = model_of(
        lambda: layers.Dense(6, activation=activation),
        lambda: layers.Dense(3, use_bias=False),
        shape=shape,
    )
    check(build, floats(4, *shape), floats(4, *shape[:-1], 3))


@pytest.mark.parametrize(
    "equation, output_shape, bias_axes",
    [
        ("abc,cd->abd", (7, 6), "d"),
        ("abc,dc->abd", (7, 6), None),
        ("abc,cde->abde", (7, 3, 2), "de"),
        ("abc,cde->adbe", (3, 7, 2), "d"),
        ("...x,xy->...y", (4,), "y"),
        ("abc,bcd->abd", (7, 6), "bd"),  # a matrix for every position
        ("abc,cb->abc", (7, 5), "bc"),  # a scale
        ("abc,bcd->ad", (6,), "d"),
        ("abc,b->ac", (5,), None),
    ],
)
def test_einsum_dense(equation, output_shape, bias_axes):
    build = model_of(
        lambda: layers.EinsumDense(equation, output_shape, bias_axes=bias_axes, activation="tanh"),
        lambda: layers.Flatten(),
        lambda: layers.Dense(2),
        shape=(7, 5),
    )
    check(build, floats(4, 7, 5), floats(4, 2))


def test_embedding_read_twice_by_one_example():
    build = model_of(
        lambda: layers.Embedding(9, 4), lambda: layers.Dense(3), shape=(6,), dtype="int32"
    )
    x = ids(4, 6, below=9)
    x[0] = 2  # all six positions read the same row
    check(build, x, floats(4, 6, 3))


@pytest.mark.parametrize("axis", [-1, [1, 2], [2]])
@pytest.mark.parametrize("options", [{}, {"center": False}, {"scale": False}])
def test_layer_normalization(axis, options):
    build = model_of(
        lambda: layers.LayerNormalization(axis=axis, epsilon=1e-2, **options),
        lambda: layers.Dense(3),
        shape=(4, 5),
    )
    check(build, floats(3, 4, 5), floats(3, 4, 3))


@pytest.mark.parametrize("causal", [False, True])
def test_multi_head_attention(causal):
    def build():
        x = layers.Input((6, 8))
        memory = layers.Input((5, 4))
        y = layers.MultiHeadAttention(2, 3, value_dim=5)(x, x, use_causal_mask=causal)
        y = layers.MultiHeadAttention(2, 4)(y, memory)
        return keras.Model([x, memory], layers.Dense(2)(y))

    check(build, [floats(3, 6, 8), floats(3, 5, 4)], floats(3, 6, 2))


def test_classifier_compiled_by_xla():
    build = model_of(
        lambda: layers.Embedding(11, 8),
        lambda: layers.LayerNormalization(),
        lambda: layers.EinsumDense("abc,cde->abde", (6, 2, 4), bias_axes="de"),
        lambda: layers.Flatten(),
        lambda: layers.Dense(5, activation="gelu"),
        lambda: layers.Dense(4),
        shape=(6,),
        dtype="int32",
    )
    check(build, ids(5, 6, below=11), ids(5, below=4), class_loss, jit_compile=True)


@pytest.mark.parametrize("jit_compile", [True, False], ids=["compiled", "not_compiled"])
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda: layers.GroupNormalization(2), (16, 16, 8)),
        (lambda: layers.GroupNormalization(2, axis=1), (16, 16, 8)),
        (lambda: layers.LayerNormalization(axis=[1, 2, 3]), (16, 16, 8)),
        (lambda: layers.LayerNormalization(), (2, 2, 768)),
    ],
    ids=["groups", "groups_first", "all_axes", "last_axis"],
)
def test_normalizations_of_numbers_far_from_zero(layer, shape, jit_compile):
    """Means 100 times the deviation round away less than 1e-5 of the norms."""

    def build():
        return model_of(
            layer,
            lambda: layers.Activation("tanh"),
            lambda: layers.GlobalAveragePooling2D(),
            lambda: layers.Dense(2),
            shape=shape,
            dtype=keras.config.dtype_policy().compute_dtype,  # else the loop rounds them away
        )()

    x = 100 + floats(3, *shape)
    check(build, x, floats(3, 2), engines=["single_pass"], jit_compile=jit_compile)
