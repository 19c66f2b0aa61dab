"""All examples of a user clipped together: norms and sums equal a float64 loop over users."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.clipping.models import dense_net, floats, ids, layers, perturbed, token_net
from tests.clipping.reference import Reference, brute_force, class_loss, squared_error, twins
from tfdp.clipping import Batch, ClippedGradient, per_example_loss

EACH = 3
ENGINES = ("single_pass", "two_pass", "vectorized")


def of_users(model, loss, x, y, mask, clip_norm, engine="single_pass", each=EACH):
    function = ClippedGradient(
        model,
        per_example_loss(loss),
        clip_norm,
        engine=engine,
        jit_compile=False,
        examples_per_user=each,
    )
    batch = Batch(tf.constant(x), tf.constant(y), None, tf.constant(mask), tf.constant([0, 0]))
    weights = [tf.convert_to_tensor(v.value) for v in function.forward.trainable]
    state = [tf.convert_to_tensor(v.value) for v in function.forward.state]
    return tf.function(function, autograph=False)(weights, state, batch)


def user_reference(exact, loss, x, y, mask):
    """Per-example gradients by the loop, added up by user, without padding."""
    singles = brute_force(exact, loss, x, y)
    masks = [mask.reshape(-1, *[1] * (g.ndim - 1)) for g in singles.gradients]
    sums = [
        (g * m).reshape(-1, EACH, *g.shape[1:]).sum(1)
        for g, m in zip(singles.gradients, masks, strict=True)
    ]
    return Reference(sums, singles.losses)


def conv_net():
    stack = [
        layers.Input((6, 6, 2)),
        layers.Conv2D(3, 3, strides=2, activation="tanh"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(2),
    ]
    return perturbed(keras.Sequential(stack))


def attention_net():
    inputs = keras.Input((4, 6))
    hidden = layers.MultiHeadAttention(2, 3)(inputs, inputs)
    return perturbed(keras.Model(inputs, layers.Dense(3)(layers.LayerNormalization()(hidden))))


def tied_net():
    inputs = keras.Input((5,), dtype="int32")
    table = layers.ReversibleEmbedding(7, 4)
    return perturbed(keras.Model(inputs, table(layers.Dense(4)(table(inputs)), reverse=True)))


CASES = {
    "dense": (dense_net, floats(12, 4), floats(12, 3, seed=1), squared_error),
    "tokens": (token_net, ids(12, 6, below=9), ids(12, 6, below=7, seed=1), class_loss),
    "convolution": (conv_net, floats(12, 6, 6, 2), floats(12, 2, seed=1), squared_error),
    "attention": (attention_net, floats(12, 4, 6), floats(12, 4, 3, seed=1), squared_error),
    "tied": (tied_net, ids(12, 5, below=7), ids(12, 5, below=7, seed=1), class_loss),
}
#: A user with three examples, one with a single one, one without any, one with a gap.
MASK = np.array([1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 0, 1], bool)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", list(CASES))
def test_norms_and_sums_of_users_equal_the_loop(name, engine):
    """E11."""
    build, x, y, loss = CASES[name]
    model, exact = twins(build)
    reference = user_reference(exact, loss, x, y, MASK)
    clip_norm = float(np.median(reference.norms[reference.norms > 0]))
    found = of_users(model, loss, x, y, MASK, clip_norm, engine)
    np.testing.assert_allclose(found.norms, reference.norms, rtol=1e-5, atol=1e-6)
    assert found.norms[2] == 0
    np.testing.assert_array_equal(found.used, MASK)
    for ours, sums in zip(found.sums, reference.clipped_sums(clip_norm), strict=True):
        assert np.linalg.norm(ours - sums) <= 1e-5 * max(np.linalg.norm(sums), 0.01 * clip_norm)


def test_a_user_of_five_examples_moves_the_sum_by_at_most_the_clip_norm():
    """E11."""
    x, y = floats(10, 4), 100 * floats(10, 3, seed=1)
    model = dense_net()
    whole = of_users(model, squared_error, x, y, np.ones(10, bool), 0.5, each=5)
    without = of_users(model, squared_error, x, y, np.arange(10) < 5, 0.5, each=5)
    moved = [np.asarray(a - b).ravel() for a, b in zip(whole.sums, without.sums, strict=True)]
    assert np.linalg.norm(np.concatenate(moved)) == pytest.approx(0.5, rel=1e-5)
    assert (whole.norms.numpy() > 0.5).all()


def test_gradients_of_a_user_that_cancel_count_by_their_sum():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((2,)), layers.Dense(1, use_bias=False)])

    def linear(y_true, y_pred):
        return y_pred[:, 0]

    x = np.array([[3, 0], [-3, 0], [3, 4], [0, 0]], "float32")
    found = of_users(model, linear, x, np.zeros((4, 1), "float32"), np.ones(4, bool), 1.0, each=2)
    np.testing.assert_allclose(found.norms, [0, 5], atol=1e-2)  # what rounding could hide
    np.testing.assert_allclose(found.sums[0][:, 0], [0.6, 0.8], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("engine", ["single_pass", "vectorized"])
def test_a_user_with_an_example_that_overflows_contributes_nothing(engine):
    """B5."""
    x, y = floats(6, 4), floats(6, 3, seed=1)
    x[1] = np.inf
    model = dense_net()
    found = of_users(model, squared_error, x, y, np.ones(6, bool), 0.5, engine)
    alone = of_users(model, squared_error, x, y, np.arange(6) >= 3, 0.5, engine)
    np.testing.assert_array_equal(found.used, [0, 0, 0, 1, 1, 1])
    for ours, theirs in zip(found.sums, alone.sums, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)


def test_padding_that_is_not_a_number_does_not_spoil_its_user():
    """A29."""
    x, y = floats(6, 4), floats(6, 3, seed=1)
    mask = np.array([1, 1, 0, 1, 1, 1], bool)
    model = dense_net()
    clean = of_users(model, squared_error, x, y, mask, 0.5)
    x[2] = y[2] = np.nan
    found = of_users(model, squared_error, x, y, mask, 0.5)
    np.testing.assert_array_equal(found.used, mask)
    for ours, theirs in zip(found.sums, clean.sums, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)
