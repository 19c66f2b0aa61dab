"""No example contributes more than C; padding and non-finite examples contribute nothing."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.clipping.models import assert_same, clipped, dense_net, floats
from tests.clipping.reference import squared_error
from tfdp.clipping import (
    Batch,
    ClippedGradient,
    ScalarLossError,
    clipped_gradient_sum,
    per_example_loss,
)

ENGINES = ["single_pass", "two_pass", "vectorized"]
X, Y = floats(8, 4), 3 * floats(8, 3, seed=1)


def total_norm(gradients) -> float:
    return float(tf.linalg.global_norm(gradients))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("clip_norm", [1e-6, 0.5, 1e6])
def test_one_example_alone_has_norm_of_at_most_c(engine, clip_norm):
    only = np.arange(8) == 2
    found = clipped(dense_net(), squared_error, X, Y, clip_norm, mask=only, engine=engine)
    expected = min(clip_norm, float(found.norms[2]))
    assert total_norm(found.gradients) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("size", [16, 64])
def test_padding_to_any_size_changes_nothing_even_with_nan(engine, size):
    """A29."""
    model = dense_net()
    exact = clipped(model, squared_error, X, Y, engine=engine)
    x = np.full((size, 4), np.nan, "float32")
    y = np.full((size, 3), np.inf, "float32")
    rows = np.random.default_rng(0).permutation(size)[:8]
    x[rows], y[rows] = X, Y
    mask = np.isin(np.arange(size), rows)
    padded = clipped(model, squared_error, x, y, mask=mask, engine=engine)
    assert_same(
        padded._replace(norms=padded.norms.numpy()[rows], losses=padded.losses.numpy()[rows]), exact
    )
    assert not padded.losses.numpy()[~mask].any()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_a_non_finite_example_contributes_zero_and_the_others_are_exact(engine, bad):
    """B5."""
    model = dense_net()
    x = X.copy()
    x[3] = bad
    y = Y.copy()
    if np.isfinite(bad):
        y[3] = bad  # finite data whose gradient overflows in float32
    found = clipped(model, squared_error, x, y, engine=engine)
    exact = clipped(model, squared_error, X, Y, mask=np.arange(8) != 3, engine=engine)
    assert not np.isfinite(found.norms[3])
    kept = np.arange(8) != 3
    np.testing.assert_allclose(found.norms.numpy()[kept], exact.norms.numpy()[kept], rtol=1e-6)
    for ours, theirs in zip(found.gradients, exact.gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("jit_compile", [True, False])
@pytest.mark.parametrize(
    "layer, inputs",
    [
        (lambda **free: keras.layers.Dense(1, **free), (400,)),
        (lambda **free: keras.layers.Dense(20, **free), (6, 100)),
        (lambda **free: keras.layers.Conv2D(64, 3, padding="same", **free), (4, 4, 64)),
    ],
)
def test_inputs_whose_squares_underflow_do_not_hide_a_large_gradient(layer, inputs, jit_compile):
    zero = layer(use_bias=False, kernel_initializer="zeros")
    head = keras.layers.Dense(1, kernel_initializer="ones", trainable=False)
    model = keras.Sequential([keras.Input(inputs), zero, head])
    x = np.full((1, *inputs), 1e-19, "float32")
    y = np.full((1, *model.output_shape[1:]), 2e17, "float32")
    found, exact = (
        clipped_gradient_sum(model, "mse", x, y, 0.1, engine=engine, jit_compile=jit_compile)
        for engine in ("single_pass", "vectorized")
    )
    assert exact.norms[0] > 0.5  # what clipping has to see
    assert found.norms[0] >= exact.norms[0] * (1 - 1e-5)
    assert total_norm(found.gradients) <= 0.1 * (1 + 1e-5)


def test_non_finite_and_padded_examples_are_not_counted_as_used():
    """B5."""
    loss = per_example_loss("mse")
    function = ClippedGradient(dense_net(), loss, 1.0, jit_compile=False)
    x = X.copy()
    x[2] = np.inf
    mask = tf.constant([True] * 7 + [False])
    batch = Batch(tf.constant(x), tf.constant(Y), None, mask, tf.constant([0, 1]))
    weights = [tf.convert_to_tensor(v.value) for v in function.forward.trainable]
    found = tf.function(function, autograph=False)(weights, [], batch)
    assert found.used.numpy().tolist() == [True, True, False, True, True, True, True, False]


@pytest.mark.parametrize("engine", ENGINES)
def test_an_example_without_gradient_gives_a_finite_sum(engine):
    """B6."""
    model = dense_net()
    y = model(X).numpy()
    y[1:] = Y[1:]
    found = clipped(model, squared_error, X, y, engine=engine)
    assert float(found.norms[0]) < 1e-6
    assert all(np.isfinite(g).all() for g in found.gradients)


@pytest.mark.parametrize("microbatch_size", [None, 4])
def test_an_empty_batch_gives_zeros(microbatch_size):
    """E9."""
    model = dense_net()
    found = clipped(model, squared_error, X[:0], Y[:0], microbatch_size=microbatch_size)
    assert [g.shape for g in found.gradients] == [w.shape for w in model.trainable_variables]
    assert total_norm(found.gradients) == 0 and found.norms.shape == [0]


def test_a_batch_of_padding_only_gives_zeros():
    """E9."""
    found = clipped(dense_net(), squared_error, X, Y, mask=np.zeros(8, bool))
    assert total_norm(found.gradients) == 0


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
def test_microbatches_of_any_size_add_up_to_the_same_sum(size):
    """A9, A10."""
    model = dense_net()
    whole = clipped(model, squared_error, X, Y)
    assert_same(clipped(model, squared_error, X, Y, microbatch_size=size), whole)


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, float("nan"), float("inf")])
def test_a_clip_norm_that_limits_nothing_is_rejected(clip_norm):
    """A34."""
    with pytest.raises(ValueError, match="clip_norm"):
        clipped(dense_net(), squared_error, X, Y, clip_norm)


def test_xla_gives_the_same():
    model = dense_net()
    for engine in ENGINES:
        compiled = clipped(model, squared_error, X, Y, engine=engine, jit_compile=True)
        assert_same(compiled, clipped(model, squared_error, X, Y), rtol=1e-5)


def test_dropout_draws_one_mask_an_example_and_new_ones_by_seed():
    model = keras.Sequential(
        [keras.layers.Input((50,)), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
    )
    x, y = np.ones((6, 50), "float32"), np.zeros((6, 1), "float32")
    first = clipped(model, squared_error, x, y)
    again = clipped(model, squared_error, x, y)
    other = clipped(model, squared_error, x, y, seed=(0, 1))
    assert len(set(first.losses.numpy())) == 6  # equal examples, masks of their own
    np.testing.assert_array_equal(first.losses, again.losses)
    assert not set(first.losses.numpy()) & set(other.losses.numpy())


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"y": Y[:3]}, ValueError, "same number of examples, got {'x': 4, 'y': 3}"),
        ({"mask": [True, False]}, ValueError, "'mask': 2"),
        ({"sample_weight": np.ones(1)}, ValueError, "'sample_weight"),
        ({"x": X.tolist()}, TypeError, "x must hold arrays"),
        ({"microbatch_size": -1}, ValueError, "microbatch_size must be .* got -1"),
        ({"microbatch_size": 2.5}, TypeError, "microbatch_size must be .* got 2.5"),
        ({"x": None}, ValueError, "x=None: expected arrays"),
        ({"y": None}, ValueError, "y=None: expected arrays"),
        ({"mask": np.ones((4, 1))}, ValueError, "mask must hold one boolean per example"),
        ({"mask": [1.0, 0.5, 0.0, 1.0]}, ValueError, "mask must hold one boolean per example"),
        ({"seed": 3}, ValueError, "seed must be two whole numbers, such as .* got 3"),
        ({"model": "mlp"}, TypeError, "model must be a keras.Model, got 'mlp'"),
        ({"model": keras.Sequential([keras.layers.Dense(3)])}, ValueError, "It is not built"),
        ({"loss": lambda t, p: 0.0}, ScalarLossError, r"returned shape \(\)"),
        ({"public_examples": X}, TypeError, r"public_examples must be \(x, y\).* got a ndarray"),
        ({"clip_norm": "1"}, TypeError, "clip_norm must be a finite number above 0, got '1'"),
    ],
)
def test_arguments_out_of_range_are_rejected_by_name(arguments, error, message):
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3)])
    given = {"model": model, "loss": "mse", "x": X[:4], "y": Y[:4], "clip_norm": 1.0}
    with pytest.raises(error, match=message):
        clipped_gradient_sum(**{**given, **arguments})
