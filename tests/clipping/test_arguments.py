"""What clipped_gradient_sum cannot use is named."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.clipping.models import floats
from tfdp.clipping import clipped_gradient_sum

X, U, V = floats(4, 3), floats(4, 2, seed=1), floats(4, 1, seed=2)
ONES = np.ones(4, "float32")


def two_outputs():
    x = keras.Input((3,))
    heads = {name: keras.layers.Dense(n, name=name)(x) for name, n in (("u", 2), ("v", 1))}
    return keras.Model(x, heads)


def summed(model=None, **arguments):
    loss, given = {"u": "mse", "v": "mse"}, {"x": X, "y": {"u": U, "v": V}, **arguments}
    model = model or two_outputs()
    return clipped_gradient_sum(model, loss, clip_norm=1.0, jit_compile=False, **given)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sample_weight": {"u": ONES}}, r"sample_weight must be .*\(u, v\) with None"),
        ({"sample_weight": [ONES, ONES]}, r"sample_weight must be .*\(u, v\) with None"),
        ({"sample_weight": np.array(list("abcd"))}, "sample_weight must be .*numbers, got text"),
        ({"y": {"u": U, "v": np.array(list("abcd"))}}, "y.v must be an array of numbers, got text"),
        ({"x": np.array([[1], [2, 3]] * 2, object)}, "x must be .*numbers, got objects of .* list"),
        (
            {"x": tf.ragged.constant([[1.0], [2, 3]])},
            "x must be .* RaggedTensor.*Pad examples of different lengths",
        ),
        ({"seed": ("a", "b")}, "seed must be two whole numbers"),
        ({"seed": (0.5, 1)}, "seed must be two whole numbers"),
        ({"microbatch_size": True}, "microbatch_size must be a whole .* 1, or None, got True"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value,
)
def test_arguments_of_the_wrong_kind_are_named(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        summed(**arguments)


def test_none_stands_for_an_output_without_weights():
    one, both = (
        summed(model, sample_weight={"u": 2 * ONES, "v": v}).losses
        for model in [two_outputs()]
        for v in (None, ONES)
    )
    np.testing.assert_array_equal(one, both)
