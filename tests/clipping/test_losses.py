"""One loss value an example, whatever the Keras loss and its reduction."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.clipping.models import assert_same, clipped, dense_net, floats, ids, token_net
from tests.clipping.reference import (
    assert_equal,
    brute_force,
    check,
    class_loss,
    squared_error,
    twins,
)
from tfdp.clipping import Batch, ClippedGradient, ScalarLossError, per_example_loss

X, Y = floats(4, 4), ids(4, below=3)
TOKENS, TARGETS = ids(4, 6, below=9), ids(4, 6, below=7)


def tokens_loss(**options):
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)


@pytest.mark.parametrize("reduction", ["sum", "mean", "sum_over_batch_size", "none", None])
def test_the_reduction_of_the_loss_changes_nothing(reduction):
    """C3."""
    model = dense_net()
    plain = clipped(model, tokens_loss(), X, Y, clip_norm=0.3)
    assert_same(clipped(model, tokens_loss(reduction=reduction), X, Y, clip_norm=0.3), plain)


def test_names_and_functions_work_like_objects():
    """C3."""
    model = dense_net()
    y = floats(4, 3)
    plain = clipped(model, keras.losses.MeanSquaredError(), X, y)
    assert_same(clipped(model, "mse", X, y), plain)
    assert_same(clipped(model, keras.losses.mean_squared_error, X, y), plain)
    assert_same(clipped(model, lambda t, p: tf.reduce_mean((t - p) ** 2, -1), X, y), plain)


@pytest.mark.parametrize(
    "loss",
    [
        lambda t, p: tf.reduce_mean((t - p) ** 2),
        lambda t, p: tf.reduce_mean((t - p) ** 2, axis=0),
    ],
)
def test_a_loss_without_a_value_per_example_is_rejected(loss):
    """C3."""
    with pytest.raises(ScalarLossError, match="one value per example"):
        clipped(dense_net(), loss, X, floats(4, 3))


def test_targets_that_do_not_go_with_the_outputs_are_rejected_with_both_shapes():
    with pytest.raises(ValueError, match=r"'mse' cannot be .* shape \(., 2\) and .* \(., 3\)"):
        clipped(dense_net(), "mse", X, floats(4, 2))


def test_a_missing_loss_is_rejected():
    with pytest.raises(ValueError, match="loss=None"):
        per_example_loss(None)


def test_the_mean_is_over_real_tokens():
    """A8."""
    loss = per_example_loss(lambda t, p: p[..., 0])
    values = tf.stack([tf.constant([[2.0, 4.0, 9.0, np.nan]])] * 2, axis=-1)
    weight = tf.constant([[1.0, 1.0, 0.0, 0.0]])
    assert loss(tf.zeros([1, 4]), values, weight).numpy() == [3.0]
    values._keras_mask = tf.constant([[True, True, False, False]])
    assert loss(tf.zeros([1, 4]), values).numpy() == [3.0]


@pytest.mark.parametrize("engine", ["single_pass", "vectorized"])
def test_masked_labels_change_nothing(engine):
    """A8."""
    model = token_net()
    weight = np.ones((4, 6), "float32")
    weight[:, 4:] = 0
    other = TARGETS.copy()
    other[:, 4:] = (other[:, 4:] + 1) % 7
    found, again = (
        clipped(model, tokens_loss(), TOKENS, y, sample_weight=weight, engine=engine)
        for y in (TARGETS, other)
    )
    assert_same(found, again, rtol=0)


def test_sequence_losses_equal_single_example_runs():
    """C4."""
    check(token_net, TOKENS, TARGETS, tokens_loss())


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "sum", "none"])
def test_ignored_classes_do_not_count(reduction):
    """C4: K12: half of the tokens ignored gives the mean over the other half."""
    model = token_net()
    y = TARGETS.copy()
    y[:, ::2] = 0
    y[:, 1::2] = np.maximum(y[:, 1::2], 1)
    found = clipped(model, tokens_loss(ignore_class=0, reduction=reduction), TOKENS, y)
    exact = [
        float(tokens_loss()(y[i : i + 1, 1::2], model(TOKENS[i : i + 1])[:, 1::2]))
        for i in range(4)
    ]
    np.testing.assert_allclose(found.losses, exact, rtol=1e-6)


@pytest.mark.parametrize("compiled", [True, False])
def test_tokens_that_keras_masks_do_not_count(compiled):
    """C4."""

    def build():
        tokens = keras.layers.Input((6,), dtype="int32")
        embedded = keras.layers.Embedding(9, 4, mask_zero=True)(tokens)
        return keras.Model(tokens, keras.layers.Dense(7)(embedded))

    x = TOKENS.copy()
    x[:, 4:], x[:, 0] = 0, 1
    check(build, x, TARGETS, tokens_loss(), engines=["single_pass"], jit_compile=compiled)


def test_an_example_with_no_real_token_contributes_zero():
    y = TARGETS.copy()
    y[1] = 0
    found = clipped(token_net(), tokens_loss(ignore_class=0), TOKENS, y)
    assert float(found.norms[1]) == 0 and float(found.losses[1]) == 0


def test_sample_weights_scale_the_gradient_before_clipping():
    model = dense_net()
    weight = np.array([0.0, 0.5, 2.0, 100.0], "float32")
    plain = clipped(model, tokens_loss(), X, Y, clip_norm=1e-3)
    found = clipped(model, tokens_loss(), X, Y, clip_norm=1e-3, sample_weight=weight)
    np.testing.assert_allclose(found.norms, plain.norms * weight, rtol=1e-5)
    alone = clipped(model, tokens_loss(), X, Y, 1e-3, sample_weight=weight, mask=weight == 100)
    assert float(tf.linalg.global_norm(alone.gradients)) == pytest.approx(1e-3, rel=1e-5)


def two_outputs():
    x = keras.layers.Input((4,))
    h = keras.layers.Dense(5, activation="tanh")(x)
    outputs = {
        "kind": keras.layers.Dense(3, name="kind")(h),
        "size": keras.layers.Dense(1, name="size")(h),
    }
    return keras.Model(x, outputs)


def test_several_outputs_with_several_losses():
    losses = {"kind": tokens_loss(), "size": "mse"}
    y = {"kind": Y, "size": floats(4, 1)}

    def total(y_true, y_pred):
        return class_loss(y_true["kind"], y_pred["kind"]) + squared_error(
            y_true["size"], y_pred["size"]
        )

    model, exact = twins(two_outputs)
    reference = brute_force(exact, total, X, y)
    for engine in ("single_pass", "vectorized"):
        assert_equal(clipped(model, losses, X, y, 1.0, engine=engine), reference, 1.0)


def test_a_list_of_losses_and_loss_weights():
    model = two_outputs()
    listed = keras.Model(model.inputs, [model.output["kind"], model.output["size"]])
    loss = per_example_loss([tokens_loss(), "mse"], [1.0, 0.5], listed.output_names)
    outputs = listed(X)
    size = floats(4, 1)
    found = tf.function(lambda: loss([Y, size], outputs))()
    errors = np.mean((size - outputs[1].numpy()) ** 2, axis=1)
    kinds = tokens_loss(reduction="none")(Y, outputs[0]).numpy()
    np.testing.assert_allclose(found, kinds + 0.5 * errors, rtol=1e-6)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("engine", ["single_pass", "two_pass", "vectorized"])
def test_a_loss_that_users_write_sees_one_example_at_a_time(engine, compiled):
    """A26: Made-up examples cannot show what a loss does to others once one of them is far out."""

    def loss(t, p):
        return tf.reduce_sum((t - p) ** 2, -1) * tf.cast(tf.reduce_max(tf.abs(p)) < 50, tf.float32)

    x, y = floats(5, 4), floats(5, 3)
    x[2] *= 1e4
    kernel = floats(4, 3)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, use_bias=False)])
    model.layers[0].kernel.assign(kernel)
    gradient = ClippedGradient(
        model, per_example_loss(loss), 1.0, engine=engine, jit_compile=compiled
    )
    batch = Batch(tf.constant(x), tf.constant(y), None, tf.ones([5], tf.bool), tf.constant([0, 1]))
    call = tf.function(lambda: gradient([tf.constant(kernel)], [], batch), autograph=False)
    expected = 2 * np.linalg.norm(x, axis=1) * np.linalg.norm(x @ kernel - y, axis=1)
    expected[2] = 0  # this one alone has outputs beyond 50
    np.testing.assert_allclose(call().norms, expected, rtol=1e-4)


def by_hand(y_true, y_pred):
    return keras.losses.sparse_categorical_crossentropy(y_true, y_pred)


@pytest.mark.parametrize("loss", ["sparse_categorical_crossentropy", by_hand])
@pytest.mark.parametrize("jit_compile", [True, False])
def test_losses_of_probabilities_see_the_logits_as_in_keras(loss, jit_compile):
    """Else a loss would be cut where probabilities are all but 0, with no gradient left."""

    def build(activation):
        start = keras.initializers.RandomNormal(stddev=20, seed=0)
        head = keras.layers.Dense(7, activation=activation, kernel_initializer=start)
        return keras.Sequential([keras.layers.Input((6, 4)), head])

    x = floats(4, 6, 4)
    expected = clipped(build(None), tokens_loss(), x, TARGETS)
    found = clipped(build("softmax"), loss, x, TARGETS, jit_compile=jit_compile)
    assert_same(found, expected, rtol=1e-5)


@pytest.mark.parametrize("jit_compile", [True, False])
def test_losses_see_the_logits_of_probabilities_that_tensorflow_computes(jit_compile):
    class Own(keras.Model):
        def __init__(self, ending):
            super().__init__()
            start = keras.initializers.RandomNormal(stddev=20, seed=0)
            self.head, self.ending = keras.layers.Dense(7, kernel_initializer=start), ending

        def call(self, x):
            return self.ending(self.head(x))

    x = floats(4, 6, 4)
    logits, probabilities = Own(tf.identity), Own(tf.nn.softmax)
    logits(x), probabilities(x)
    expected = clipped(logits, tokens_loss(), x, TARGETS)
    loss = "sparse_categorical_crossentropy"
    found = clipped(probabilities, loss, x, TARGETS, jit_compile=jit_compile)
    assert_same(found, expected, rtol=1e-5)


class OwnHead(keras.layers.Layer):
    """Ends in probabilities; with a rate, it draws random numbers."""

    def __init__(self, activation, rate):
        super().__init__()
        self.activation = keras.activations.get(activation)
        self.dropout = keras.layers.Dropout(rate) if rate else None

    def build(self, shape):
        start = keras.initializers.RandomNormal(stddev=20, seed=0)
        self.kernel = self.add_weight(shape=(shape[-1], 7), initializer=start)

    def call(self, x):
        x = x if self.dropout is None else self.dropout(x)
        return self.activation(keras.ops.matmul(x, self.kernel))


@pytest.mark.filterwarnings("ignore:No rule for")
@pytest.mark.parametrize("rate", [0, 0.5])
@pytest.mark.parametrize("jit_compile", [True, False])
def test_losses_see_the_logits_behind_layers_without_a_rule(rate, jit_compile):
    def found(activation, loss):
        model = keras.Sequential([keras.Input((6, 4)), OwnHead(activation, rate)])
        return clipped(model, loss, floats(4, 6, 4), TARGETS, jit_compile=jit_compile)

    probabilities = found("softmax", "sparse_categorical_crossentropy")
    assert_same(probabilities, found(None, tokens_loss()), rtol=1e-5)
