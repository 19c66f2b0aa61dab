"""The rule that the documentation writes out, run as it stands there."""

import textwrap
import warnings

import keras
import pytest
import tensorflow as tf

import tfdp
from tests.clipping.models import floats
from tests.clipping.reference import check


class Scale(keras.layers.Layer):
    """The documentation's layer: outputs = inputs * scale."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="normal", name="scale")

    def call(self, inputs):
        return inputs * self.scale


def documented_rule() -> str:
    """The code block in the docstring of register_rule."""
    after = textwrap.dedent(tfdp.clipping.register_rule.__doc__.split("::\n", 1)[1])
    return textwrap.dedent(after.split("\nArgs:", 1)[0].split("\n    Args:", 1)[0]).strip()


def build():
    stack = [keras.layers.Input((4, 3)), Scale(), keras.layers.Dense(2)]
    return keras.Sequential(stack)


def test_the_documented_rule_is_ten_lines_at_most_and_takes_the_place_of_the_fallback():
    with pytest.warns(UserWarning, match="No rule for.*Scale"):
        check(build, floats(3, 4, 3), floats(3, 4, 2), engines=["auto"])
    code = documented_rule()
    assert code.startswith("@tfdp.clipping.register_rule(Scale)")
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    exec(code, {"tfdp": tfdp, "tf": tf, "Scale": Scale})
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="exact but slower")
        check(build, floats(3, 4, 3), floats(3, 4, 2), engines=["single_pass", "two_pass"])
