"""One example whose large products cancel is still bounded by the clip norm."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfdp.clipping import Batch, ClippedGradient, per_example_loss, per_example_norms

CLIP = 1.0


def gated(layer, inputs, dtype="float32"):
    """The layer's outputs times a gate, so that the data choose the gradients of its positions."""
    features = keras.Input(inputs, dtype=dtype)
    gate = keras.Input((inputs[0], 1))
    pooled = keras.layers.GlobalAveragePooling1D()(keras.layers.multiply([layer(features), gate]))
    head = keras.layers.Dense(1, use_bias=False, trainable=False)
    return keras.Model([features, gate], head(pooled))


def contributions(model, examples, engine="single_pass"):
    """The norm of what each example, alone in its batch, adds to the clipped sum."""
    loss = per_example_loss(keras.losses.MeanSquaredError())
    clipped = ClippedGradient(model, loss, CLIP, engine=engine)
    run = tf.function(clipped, autograph=False)
    weights, state = (
        [v.value for v in vs] for vs in (clipped.forward.trainable, clipped.forward.state)
    )
    target, mask, seed = tf.fill([1, 1], 5.0), tf.ones([1], tf.bool), tf.zeros([2], tf.int32)
    for features, gate in examples:
        batch = Batch([tf.constant(features), tf.constant(gate)], target, None, mask, seed)
        yield float(tf.linalg.global_norm(run(weights, state, batch).sums))


@pytest.mark.parametrize(
    "layer, size",
    [
        (lambda: keras.layers.Dense(8, use_bias=False), 8),
        (lambda: keras.layers.Dense(512, use_bias=False), 512),
        (lambda: keras.layers.EinsumDense("abc,cd->abd", (None, 8)), 8),
        (lambda: keras.layers.Conv1D(64, 1, use_bias=False), 8),
    ],
)
@pytest.mark.parametrize("pairs", [1, 4])
def test_cancelling_positions_stay_within_the_clip_norm(layer, size, pairs):
    rng = np.random.default_rng(0)
    examples = [
        (
            np.tile(rng.normal(size=(1, 1, size)) * 1e3, (1, 2 * pairs, 1)).astype("float32"),
            np.array([[[1e3], [-1e3 * (1 - difference)]] * pairs], "float32").reshape(1, -1, 1),
        )
        for difference in (2e-3, 2e-4, 1e-6, 0.0)
        for _ in range(10)
    ]
    assert max(contributions(gated(layer(), (2 * pairs, size)), examples)) <= CLIP * 1.001


@pytest.mark.parametrize("engine", ["single_pass", "two_pass"])
@pytest.mark.parametrize("layer", [lambda: keras.layers.Dense(3), keras.layers.LayerNormalization])
def test_gradients_that_are_formed_bound_the_sum_of_every_engine(layer, engine):
    rng = np.random.default_rng(0)
    gates = rng.normal(size=(20, 1, 256, 1)) * 1e6
    gates = (gates - gates.mean(axis=2, keepdims=True)).astype("float32")
    features = np.tile(rng.normal(size=(20, 1, 1, 8)) * 1e3, (1, 1, 256, 1)).astype("float32")
    examples = list(zip(features, gates, strict=True))
    found = contributions(gated(layer(), (256, 8)), examples, engine)
    assert max(found) <= CLIP * 1.001


@pytest.mark.parametrize("repeats", [2, 64])
def test_cancelling_lookups_stay_within_the_clip_norm(repeats):
    rng = np.random.default_rng(0)
    gates = rng.normal(size=(20, 1, repeats, 1)) * 1e4
    gates = (gates - gates.mean(axis=2, keepdims=True) + 0.05).astype("float32")
    model = gated(keras.layers.Embedding(5, 8), (repeats,), dtype="int32")
    ids = np.full((1, repeats), 3, "int32")
    assert max(contributions(model, [(ids, gate) for gate in gates])) <= CLIP * 1.001


@pytest.mark.parametrize("jit_compile", [True, False])
def test_branches_of_a_siamese_network_may_cancel(jit_compile):
    keras.utils.set_random_seed(0)
    tower = keras.Sequential([keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(8)])
    x = keras.Input((8,))
    inputs, targets = np.random.default_rng(0).normal(size=(2, 6, 8)).astype("float32")
    for difference, tolerance in [(0.1, 3e-6), (0.01, 2e-5), (0.001, 2e-4)]:
        model = keras.Model(x, tower(x) - tower(x * (1 + difference)))
        norms, exact = (
            per_example_norms(
                model, "mse", inputs, targets, engine=engine, jit_compile=jit_compile
            ).numpy()
            for engine in ("single_pass", "vectorized")
        )
        np.testing.assert_allclose(norms, exact, rtol=tolerance)


@pytest.mark.parametrize("engine", ["single_pass", "two_pass"])
def test_branches_that_partly_cancel_stay_within_the_clip_norm(engine):
    keras.utils.set_random_seed(0)
    tower = keras.Sequential([keras.layers.Dense(64, activation="tanh"), keras.layers.Dense(16)])
    a, b = keras.Input((24,)), keras.Input((24,))
    model = keras.Model([a, b], 1e3 * keras.layers.Dense(1)(tower(a) - tower(b)))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(24, 24)).astype("float32")
    near = (x + 10.0 ** rng.uniform(-5, -2, size=(24, 1)) * rng.normal(size=x.shape)).astype("f4")
    loss = per_example_loss("mse")
    clipped = ClippedGradient(model, loss, 1e-3, engine=engine, jit_compile=False)
    run = tf.function(clipped, autograph=False)
    weights = [tf.convert_to_tensor(v.value) for v in clipped.forward.trainable]
    target, mask, seed = tf.ones([1, 1]), tf.ones([1], tf.bool), tf.zeros([2], tf.int32)
    for one, other in zip(x, near, strict=True):
        batch = Batch([tf.constant(one[None]), tf.constant(other[None])], target, None, mask, seed)
        sums = [tf.cast(total, tf.float64) for total in run(weights, [], batch).sums]
        assert float(tf.linalg.global_norm(sums)) <= 1e-3 * (1 + 1e-6)
