"""How many examples are handled at a time where nobody says."""

import keras
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

import tfdp.clipping.microbatch_size as module
from tests.clipping.models import dense_net, floats
from tfdp.clipping import Batch, ClippedGradient, clipped_gradient_sum, per_example_loss
from tfdp.clipping.microbatch_size import Device, best_microbatch_size

MIB = 2**20


def example_bytes(model, *features, engine="auto", examples_per_user=1):
    loss = per_example_loss("mse" if len(model.outputs) == 1 else ["mse"] * len(model.outputs))
    clipped = ClippedGradient(model, loss, 1.0, engine=engine, examples_per_user=examples_per_user)
    y = [tf.zeros([2, *output.shape[1:]]) for output in model.outputs]
    y = y[0] if len(y) == 1 else y
    batch = Batch(tf.zeros([2, *features]), y, None, tf.ones([2], tf.bool), tf.constant([0, 1]))
    clipped.check(batch)
    (plan,) = clipped._plans.values()
    return plan.example_bytes(clipped.forward.trainable, examples_per_user)


@pytest.fixture
def small_device(monkeypatch):
    monkeypatch.setattr(module, "_CPU", Device(limit=500, overhead=0))


def test_an_example_takes_the_operands_and_results_of_products_and_the_biases_gradients():
    # x [4], tanh [5], and with their gradients the products [5] and [3]; biases [5] and [3].
    assert example_bytes(dense_net(), 4) == 4 * (4 + 2 * 5 + 5 + 2 * 3 + 5 + 3)


def test_a_view_is_not_counted_again():
    x = keras.Input((50, 4))
    three = [keras.layers.Dense(3, use_bias=False, name=f"d{i}")(x) for i in range(3)]
    # Explicit gradients [4, 3] are cheaper than Gram matrices of 50 positions.
    assert example_bytes(keras.Model(x, three), 50, 4) == 4 * (50 * 4 + 3 * 2 * 50 * 3 + 3 * 4 * 3)


def averaged(*pieces):
    """A model of 100 ids, or of as many as all pieces have together, looked up in one table."""
    ids, table = keras.Input((100,)), keras.layers.Embedding(10, 2)
    found = [table(ids[:, piece]) for piece in pieces or [slice(None)]]
    return keras.Model(ids, [keras.layers.GlobalAveragePooling1D()(one) for one in found])


def test_norms_by_gram_matrices_take_the_squares_of_all_uses_positions():
    two_matrices = 2 * 4 * 100**2
    assert two_matrices < example_bytes(averaged(), 100) < 1.1 * two_matrices
    halves = averaged(slice(0, 50), slice(50, 100))  # whose cross terms count
    assert two_matrices < example_bytes(halves, 100) < 1.1 * two_matrices
    assert (
        example_bytes(averaged(), 100, examples_per_user=3) - example_bytes(averaged(), 100)
        == 2 * two_matrices
    )


def test_wide_windows_of_convolutions_take_what_their_places_see():
    x = keras.Input((24, 24, 8))
    taken = example_bytes(keras.Model(x, keras.layers.Conv2D(8, 9, padding="same")(x)), 24, 24, 8)
    assert taken > 4 * 24 * 24 * 8 * 9  # one view of the inputs for each place along a row


def test_depthwise_convolutions_take_what_all_places_see():
    x = keras.Input((24, 24, 8))
    model = keras.Model(x, keras.layers.DepthwiseConv2D(7, padding="same")(x))
    assert example_bytes(model, 24, 24, 8) > 4 * 24 * 24 * 8 * 7**2


def test_gradients_of_a_convolution_that_are_added_up_are_formed_first():
    x = keras.Input((4, 4, 64))
    layer = keras.layers.Conv2D(64, 3, padding="same", use_bias=False)
    kernel = 4 * 3 * 3 * 64 * 64
    once, twice = keras.Model(x, layer(x)), keras.Model(x, layer(keras.ops.tanh(layer(x))))
    assert example_bytes(once, 4, 4, 64) < kernel
    assert example_bytes(twice, 4, 4, 64) > 3 * kernel  # those of two uses, and their sum
    assert example_bytes(once, 4, 4, 64, examples_per_user=2) > 2.5 * kernel


def test_stacks_of_normalizations_take_their_outputs_and_gradients():
    x = y = keras.Input((50, 4))
    for _ in range(3):
        y = keras.layers.LayerNormalization()(keras.ops.tanh(y))
    assert example_bytes(keras.Model(x, y), 50, 4) > 3 * 2 * 4 * 50 * 4


def test_mapped_as_a_whole_an_example_keeps_the_gradients_of_all_weights():
    model = dense_net()
    kernels = 4 * 5 + 5 * 3
    assert example_bytes(model, 4, engine="vectorized") == example_bytes(model, 4) + 4 * kernels


def test_microbatches_stay_within_the_memory_in_equal_parts():
    only = np.ones(1)
    assert (
        best_microbatch_size(100 * MIB, np.array([64]), only) == 8
    )  # 10 would fit, in 7 parts too
    assert best_microbatch_size(2000 * MIB, np.array([64]), only) == 1
    assert best_microbatch_size(1 * MIB, np.array([64]), only) == 64
    assert best_microbatch_size(1 * MIB, np.array([1500]), only) == 750
    assert best_microbatch_size(1 * MIB, np.array([1500]), only, replicas=3) == 500
    assert best_microbatch_size(0, np.array([0]), only) == 1


def test_draws_of_random_size_go_with_little_padding():
    drawn = scipy.stats.binom(50_000, 0.005)  # 250 +- 16
    counts = np.arange(151, 351)
    size = best_microbatch_size(1 * MIB, counts, drawn.pmf(counts))

    def examples_and_overhead(size):
        return drawn.pmf(counts) @ np.ceil(counts / size) * (size + 16)

    assert examples_and_overhead(size) <= 1.01 * min(map(examples_and_overhead, range(1, 351)))
    assert examples_and_overhead(size) < 0.8 * examples_and_overhead(
        250
    )  # which half the draws exceed


def test_accelerators_take_more_at_a_time(monkeypatch):
    device = tf.config.LogicalDevice("/device:GPU:0", "GPU")
    found = [*tf.config.list_logical_devices(), device]
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda: found)
    assert best_microbatch_size(100 * MIB, np.array([64]), np.ones(1)) == 32


@pytest.mark.parametrize("count", [0, 1, 7, 10])
def test_parts_chosen_and_parts_asked_for_give_the_same_sum(count, small_device):
    x, y = floats(count, 4), floats(count, 3, seed=1)
    model = dense_net()
    chosen = clipped_gradient_sum(model, "mse", x, y, 0.3)
    whole = clipped_gradient_sum(model, "mse", x, y, 0.3, microbatch_size=16)
    assert chosen.norms.shape == (count,)
    np.testing.assert_allclose(chosen.norms, whole.norms, rtol=1e-6)
    for a, b in zip(chosen.gradients, whole.gradients, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
