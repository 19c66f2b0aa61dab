"""Half precision: norms, factors and sums are formed in float32."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.captioner.fixture import build_fixture_model, inputs_and_targets, load_io
from tests.clipping.models import clipped, dense_net, floats
from tests.clipping.reference import policy, squared_error
from tfdp.clipping import ClippedGradient

layers = keras.layers


def scalar_output(t, p):
    return p[:, 0]


def linear(width: int, dtype: str) -> keras.Model:
    with policy(dtype):
        model = keras.Sequential([layers.Input((width,)), layers.Dense(1, use_bias=False)])
    model.layers[0].kernel.assign(tf.zeros([width, 1]))
    return model


@pytest.mark.parametrize("engine", ["single_pass", "vectorized"])
@pytest.mark.parametrize("value, count, norm", [(1e-4, 1_000_000, 0.1), (300.0, 4, 600.0)])
def test_norms_neither_underflow_nor_overflow_in_half_precision(engine, value, count, norm):
    """B1."""
    model = linear(count, "mixed_float16")
    x, y = np.full((2, count), value, "float32"), np.zeros((2, 1), "float32")
    found = clipped(model, scalar_output, x, y, clip_norm=1.0, engine=engine)
    np.testing.assert_allclose(found.norms, [norm, norm], rtol=1e-3)
    total = float(tf.linalg.global_norm(found.gradients))
    assert total == pytest.approx(2 * min(norm, 1.0), rel=1e-3)
    assert found.gradients[0].dtype == tf.float32


@pytest.mark.parametrize("engine", ["single_pass", "vectorized"])
def test_the_loss_scale_does_not_reach_the_clipping(engine):
    """B4: A true norm of 0.5 is not clipped at C = 1, nor does the scale stay in the sum."""
    x, y = np.full((1, 4), 0.25, "float32"), np.zeros((1, 1), "float32")
    found = clipped(linear(4, "mixed_float16"), scalar_output, x, y, clip_norm=1.0, engine=engine)
    assert float(found.norms[0]) == 0.5
    np.testing.assert_array_equal(found.gradients[0], np.full((4, 1), 0.25))


def test_small_gradients_survive_float16():
    """6e-8 is the smallest float16: without a scale these gradients would be zero."""
    with policy("mixed_float16"):
        model = keras.Sequential([layers.Input((4,)), layers.Dense(4), layers.Dense(1)])
    x, y = floats(2, 4), np.zeros((2, 1), "float32")

    def tiny(t, p):
        return 1e-7 * tf.cast(p[:, 0], tf.float32)

    found = clipped(model, tiny, x, y)
    whole = clipped(model, lambda t, p: tf.cast(p[:, 0], tf.float32), x, y)
    np.testing.assert_allclose(found.norms, 1e-7 * whole.norms, rtol=0.02)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_norms_of_the_captioner_are_within_two_percent(dtype):
    """B3."""
    x, y = inputs_and_targets()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    found = clipped(build_fixture_model(dtype=dtype), loss, x, y, clip_norm=1.0)
    np.testing.assert_allclose(found.norms, load_io()["grad_norm"], rtol=0.02)
    assert {g.dtype for g in found.gradients} == {tf.float32}


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_the_bound_holds_for_what_is_summed_in_half_precision(dtype):
    with policy(dtype):
        model = dense_net()
    x, y = floats(6, 4), 30 * floats(6, 3, seed=1)
    for row in range(3):
        only = np.arange(6) == row
        found = clipped(model, squared_error, x, y, clip_norm=0.5, mask=only)
        assert float(tf.linalg.global_norm(found.gradients)) == pytest.approx(0.5, rel=1e-5)


def test_an_example_that_overflows_float16_contributes_zero():
    x, y = np.ones((3, 4), "float32"), np.zeros((3, 1), "float32")
    x[1] = 60000
    with policy("mixed_float16"):
        model = keras.Sequential([layers.Input((4,)), layers.Dense(4), layers.Dense(1)])
    found = clipped(model, lambda t, p: tf.cast(p[:, 0], tf.float32) ** 2, x, y)
    assert np.isfinite(found.norms.numpy()).tolist() == [True, False, True]
    assert all(np.isfinite(g).all() for g in found.gradients)


def test_two_backward_passes_are_rejected_in_half_precision():
    with policy("mixed_bfloat16"):
        model = dense_net()
    with pytest.raises(ValueError, match="half precision"):
        ClippedGradient(model, squared_error, 1.0, engine="two_pass")
