"""Made-up examples reveal layers that mix examples, and rules that are wrong."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.clipping.models import clipped, dense_net, floats, ids
from tests.clipping.reference import squared_error
from tfdp.clipping import (
    Batch,
    CancellingError,
    ClippedGradient,
    ExplicitTerm,
    UnsupportedLayerError,
    WrongRuleError,
    per_example_loss,
    per_example_norms,
    register_rule,
)
from tfdp.clipping.synthetic_inputs import synthetic_pairs

layers, ops = keras.layers, keras.ops
X, Y = floats(4, 3), floats(4, 2, seed=1)


class Centered(layers.Layer):
    """Subtracts the mean over the batch: no weights, no known class."""

    def call(self, x):
        return x - ops.mean(x, axis=0, keepdims=True)


def test_an_unknown_layer_that_mixes_examples_is_rejected_by_name():
    """A26."""
    model = keras.Sequential([layers.Input((3,)), layers.Dense(4), Centered(name="guilty"),
                              layers.Dense(2)])  # fmt: skip
    with pytest.raises(UnsupportedLayerError, match="Centered 'guilty'"):
        clipped(model, squared_error, X, Y)


def test_mixing_between_the_layers_of_a_functional_model_is_rejected():
    x = layers.Input((3,))
    y = layers.Dense(2)(x)
    model = keras.Model(x, y + ops.flip(y, axis=0), name="outer")
    with pytest.raises(UnsupportedLayerError, match="'outer'"):
        clipped(model, squared_error, X, Y)


def test_a_loss_that_mixes_examples_is_rejected():
    def relative(t, p):
        errors = tf.reduce_mean((t - p) ** 2, axis=1)
        return errors / tf.reduce_sum(errors)

    with pytest.raises(UnsupportedLayerError, match="the loss"):
        clipped(keras.Sequential([layers.Input((3,)), layers.Dense(2)]), relative, X, Y)


def test_mixing_in_training_only_is_found():
    class Sneaky(layers.Layer):
        def call(self, x, training=False):
            return x - ops.mean(x, axis=0) if training else x

    model = keras.Sequential([layers.Input((3,)), Sneaky(), layers.Dense(2)])
    with pytest.raises(UnsupportedLayerError, match="Sneaky"):
        clipped(model, squared_error, X, Y)


def by_kind(kind):
    """A model that mixes examples by what inputs of one kind become in it."""
    x = layers.Input((4,), dtype=kind)
    if kind == "string":
        y = layers.StringLookup(vocabulary=["b"])(x)
    else:
        y = layers.Lambda(lambda x: ops.cast(x, "int32"), output_shape=(4,))(x)
    y = layers.Flatten()(layers.Embedding(2, 3)(y))
    return keras.Model(x, layers.Dense(2)(Centered(name="guilty")(y)))


@pytest.mark.parametrize("kind", ["float32", "int32", "bool", "string"])
def test_mixing_is_found_whatever_the_kind_of_the_inputs(kind):
    x = np.full((4, 4), "b") if kind == "string" else np.ones((4, 4), kind)
    with pytest.raises(UnsupportedLayerError, match="Centered 'guilty'"):
        clipped(by_kind(kind), squared_error, x, Y)


def test_weights_that_start_at_zero_do_not_hide_mixing():
    stack = [
        layers.Input((3,)),
        Centered(name="guilty"),
        layers.Dense(2, kernel_initializer="zeros"),
    ]
    with pytest.raises(UnsupportedLayerError, match="Centered 'guilty'"):
        clipped(keras.Sequential(stack), squared_error, X, Y)


class Logarithm(layers.Layer):
    """Finite beyond 1000 only, where no synthetic input lies."""

    def call(self, x):
        return ops.log(x - 1000)


def test_what_synthetic_inputs_do_not_show_is_never_passed_in_silence():
    dull = keras.Sequential([layers.Input((3,)), layers.ReLU(threshold=1000), layers.Dense(2)])
    with pytest.warns(UserWarning, match="the same for all.*public_examples"):
        clipped(dull, squared_error, X, Y)
    first = Logarithm()
    x, pair = 1001 + np.abs(X), (1002 + np.abs(X[:2]), Y[:2])
    fair = keras.Sequential([layers.Input((3,)), first, layers.Dense(2)])
    with pytest.raises(UnsupportedLayerError, match="not finite.*public_examples"):
        clipped(fair, squared_error, x, Y)
    assert np.isfinite(clipped(fair, squared_error, x, Y, public_examples=pair).norms).all()
    mixing = keras.Sequential([layers.Input((3,)), first, Centered(name="guilty"), layers.Dense(2)])
    with pytest.raises(UnsupportedLayerError, match="Centered 'guilty'"):
        clipped(mixing, squared_error, x, Y, public_examples=pair)


def test_mixing_is_found_before_the_first_batch():
    model = keras.Sequential([layers.Input((3,)), Centered(), layers.Dense(2)])
    function = ClippedGradient(model, per_example_loss("mse"), 1.0)
    spec = Batch(
        tf.TensorSpec([64, 3]), tf.TensorSpec([64, 2]), None, tf.TensorSpec([64], tf.bool), None
    )
    with pytest.raises(UnsupportedLayerError, match="Centered"):
        function.check(spec)


class Scale(layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="normal")

    def call(self, x):
        return x * self.scale


class WronglyRuled(Scale):
    def call(self, x):
        return x * self.scale


@register_rule(Scale)
def scale_rule(layer, call, tap, inputs):
    """The example in the documentation of register_rule."""

    def terms(gradient):
        yield layer.scale, ExplicitTerm(tf.reduce_sum(gradient * inputs, axis=1))

    return tap(call(inputs), terms)


@register_rule(WronglyRuled)
def wrong_rule(layer, call, tap, inputs):
    def terms(gradient):
        yield layer.scale, ExplicitTerm(tf.reduce_sum(gradient, axis=1))  # forgot the inputs

    return tap(call(inputs), terms)


def scaling(make):
    return keras.Sequential([layers.Input((5, 3)), make(name="own"), layers.Dense(2)])


def test_a_rule_of_the_users_own_takes_ten_lines():
    x, y = floats(4, 5, 3), floats(4, 5, 2)
    model = scaling(Scale)
    by_rule = clipped(model, squared_error, x, y, engine="single_pass")
    mapped = clipped(model, squared_error, x, y, engine="vectorized")
    np.testing.assert_allclose(by_rule.norms, mapped.norms, rtol=1e-5)


def test_a_wrong_rule_is_found_before_it_is_used():
    with pytest.raises(WrongRuleError, match="own/"):
        clipped(scaling(WronglyRuled), squared_error, floats(4, 5, 3), floats(4, 5, 2))


def test_a_wrong_rule_is_found_behind_weights_that_start_at_zero():
    model = scaling(WronglyRuled)
    model.layers[-1].kernel.assign(tf.zeros([3, 2]))
    with pytest.raises(WrongRuleError, match="own/"):
        clipped(model, squared_error, floats(4, 5, 3), floats(4, 5, 2))


@pytest.mark.parametrize("engine", ["auto", "vectorized"])
def test_added_losses_are_rejected_by_every_engine(engine):
    class Adds(layers.Layer):
        def call(self, x):
            self.add_loss(ops.sum(x))
            return x

    model = keras.Sequential([layers.Input((3,)), Adds(), layers.Dense(2)])
    with pytest.raises(UnsupportedLayerError, match="add_loss"):
        clipped(model, squared_error, X, Y, engine=engine)


@pytest.mark.parametrize("engine", ["auto", "vectorized"])
def test_weights_that_are_rewritten_as_the_model_runs_are_rejected_by_name(engine):
    model = keras.Sequential(
        [layers.Input((3,)), layers.SpectralNormalization(layers.Dense(2, name="held"))]
    )
    with pytest.raises(UnsupportedLayerError, match="rewrites .*held/kernel.*kernel_constraint"):
        clipped(model, squared_error, X, Y, engine=engine)


def test_updates_of_running_moments_are_dropped_and_named():
    class Counts(layers.Layer):
        def build(self, shape):
            self.total = self.add_weight(shape=(), trainable=False, name="total")

        def call(self, x):
            self.total.assign(self.total + ops.sum(x))
            return x

    model = keras.Sequential([layers.Input((3,)), Counts(name="counts"), layers.Dense(2)])
    before = float(model.layers[0].total)
    with pytest.warns(UserWarning, match="counts/total"):
        clipped(model, squared_error, X, Y)
    assert float(model.layers[0].total) == before


def test_integer_inputs_are_drawn_within_any_vocabulary():
    model = keras.Sequential([layers.Input((4,), dtype="int32"), layers.Embedding(2, 3)])
    assert np.isfinite(
        clipped(model, squared_error, ids(3, 4, below=2), floats(3, 4, 3)).norms
    ).all()


def test_regularizers_of_weights_are_no_business_of_clipping():
    plain, regularized = dense_net(), dense_net()
    regularized.layers[0].kernel.regularizer = keras.regularizers.L2(1.0)
    regularized.set_weights(plain.get_weights())
    x, y = floats(4, 4), floats(4, 3)
    a, b = (clipped(model, squared_error, x, y) for model in (plain, regularized))
    np.testing.assert_array_equal(a.norms, b.norms)


class KeepsMean(layers.Layer):
    """Passes its inputs on, and keeps their mean where Keras does not look."""

    def __init__(self, in_function):
        super().__init__(name="keeper")
        self.seen = tf.Variable(tf.zeros([3]))
        self.keep = self.seen.assign
        if in_function:
            self.keep = tf.function(lambda value: self.seen.assign(value))

    def call(self, x, training=False):
        if training:
            self.keep(tf.reduce_mean(x, axis=0))
        return x


@pytest.mark.parametrize("engine", ["auto", "two_pass", "vectorized"])
@pytest.mark.parametrize("in_function", [False, True])
def test_writes_to_variables_that_keras_does_not_know_are_rejected(engine, in_function):
    model = keras.Sequential([layers.Input((3,)), KeepsMean(in_function), layers.Dense(2)])
    with pytest.raises(UnsupportedLayerError, match="writes to a tf.Variable, table or queue"):
        clipped(model, squared_error, X, Y, engine=engine)


def frames(difference):
    """Two runs of six frames that nearly agree, and what they differ in."""
    layer = layers.Dense(16)
    x = layers.Input((8,))
    steps = layers.RepeatVector(6)(x)
    apart = layer(steps) - layer(steps * (1 + difference))
    return keras.Model(x, ops.sum(apart, axis=1))


def test_gradients_that_cancel_beyond_rounding_are_added_up_first():
    model, x, y = frames(1e-4), floats(4, 8), floats(4, 16, seed=1)
    with pytest.warns(UserWarning, match="nearly cancel"):
        norms = per_example_norms(model, squared_error, x, y)
    exact = per_example_norms(model, squared_error, x, y, engine="vectorized")
    np.testing.assert_allclose(norms, exact, rtol=1e-4)
    with pytest.raises(CancellingError, match='engine="vectorized" adds them up first'):
        per_example_norms(model, squared_error, x, y, engine="single_pass")


@pytest.mark.filterwarnings("error:The outputs")
@pytest.mark.parametrize("length", [1, 2, 3])
def test_synthetic_ids_leave_something_unmasked(length):
    tokens = layers.Input((length,), dtype="int32")
    embedded = layers.Embedding(9, 4, mask_zero=True)(tokens)
    pooled = layers.GlobalAveragePooling1D()(embedded)
    model = keras.Model(tokens, layers.Dense(2)(pooled))
    norms = per_example_norms(model, squared_error, 1 + ids(4, length, below=8), Y)
    assert np.isfinite(norms).all() and (np.asarray(norms) > 0).all()


def pooled(size, length, *, guilty=True):
    """Ids, averaged over their positions, and then a layer that mixes examples."""
    ids_in = layers.Input((length,), dtype="int32")
    x = layers.GlobalAveragePooling1D()(layers.Embedding(size, 8)(ids_in))
    if guilty:
        x = Centered(name="guilty")(x)
    return keras.Model(ids_in, layers.Dense(2)(x))


@pytest.mark.parametrize("engine", ["auto", "single_pass", "two_pass", "vectorized"])
@pytest.mark.parametrize("length", [1, 2, 7, 8, 14, 16, 19, 20])
def test_the_layer_that_mixes_is_named_whatever_ids_are_averaged(length, engine):
    """Fault F12: ids of 0 and 1 and their complements pool alike, and hid what came after."""
    for size in (2, 3, 1000):
        with pytest.raises(UnsupportedLayerError, match="Centered 'guilty'"):
            checked(pooled(size, length), length, engine)


@pytest.mark.filterwarnings("error:The outputs")
@pytest.mark.parametrize("length", [1, 2, 7, 8, 14, 16, 19, 20])
def test_averaged_ids_give_no_false_alarm(length):
    for size in (2, 3, 1000):
        checked(pooled(size, length, guilty=False), length)


def checked(model, length, engine="auto"):
    function = ClippedGradient(model, per_example_loss(squared_error), 1.0, engine=engine)
    x, y = tf.TensorSpec([4, length], tf.int32), tf.TensorSpec([4, 2])
    function.check(Batch(x, y, None, tf.TensorSpec([4], tf.bool), None))


def drawn(batch, **arguments):
    pairs = list(synthetic_pairs(batch, **arguments))
    for one, other in pairs:
        for a, b in zip(*map(keras.tree.flatten, (one.x, other.x)), strict=True):
            np.testing.assert_array_equal(a[1:], b[1:])
            yield np.asarray(a), np.asarray(b)


def test_synthetic_ids_are_spread_over_the_vocabulary():
    batch = Batch(tf.TensorSpec([4, 50], tf.int32), tf.TensorSpec([4, 2]), None, None, None)
    first, *_ = drawn(batch, known=((1000, 2), (b"a",)))
    counts, _ = np.histogram(np.stack(first), bins=4, range=(0, 1000))
    assert (counts > 50).all() and (first[0][0] != first[1][0]).all()


def test_synthetic_inputs_reach_from_below_zero_to_pixels():
    batch = Batch(tf.TensorSpec([4, 50]), tf.TensorSpec([4, 2]), None, None, None)
    ranges = [(a.min(), a.max(), (a == np.floor(a)).all()) for a, _ in drawn(batch)]
    assert any(low < -0.9 and high > 1.9 for low, high, _ in ranges)
    assert any(low >= 0 and 0.9 < high <= 1 for low, high, _ in ranges)
    assert any(low >= 0 and 250 < high <= 255 and whole for low, high, whole in ranges)


def test_words_are_drawn_from_the_vocabulary_so_that_mixing_shows():
    x = layers.Input((4,), dtype="string")
    y = layers.Embedding(4, 3)(layers.StringLookup(vocabulary=["cat", "dog"])(x))
    model = keras.Model(x, layers.Dense(2)(Centered(name="guilty")(layers.Flatten()(y))))
    with pytest.raises(UnsupportedLayerError, match="Centered 'guilty'"):
        clipped(model, squared_error, np.full((4, 4), "dog"), Y)


class MixesPixels(layers.Layer):
    """Mixes examples where a number is above a threshold."""

    def __init__(self, threshold, **options):
        super().__init__(**options)
        self.threshold = threshold

    def call(self, x):
        mean = ops.mean(x, axis=0, keepdims=True)
        return ops.where(ops.max(x) > self.threshold, x - mean, x)


class MixesAtTimes(layers.Layer):
    """Mixes examples for one random number in five."""

    def __init__(self, **options):
        super().__init__(**options)
        self.seed_generator = keras.random.SeedGenerator(0)

    def call(self, x):
        mixes = keras.random.uniform((), seed=self.seed_generator) < 0.2
        return ops.where(mixes, x - ops.mean(x, axis=0, keepdims=True), x)


@pytest.mark.parametrize("engine", ["auto", "single_pass", "two_pass", "vectorized"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: MixesPixels(100, name="guilty"),
        lambda: MixesAtTimes(name="guilty"),
        lambda: layers.Lambda(MixesPixels(100).call, output_shape=(3,), name="guilty"),
        lambda: layers.Activation(MixesPixels(100).call, name="guilty"),
        lambda: layers.Dense(3, activation=lambda x: MixesPixels(9).call(x), name="guilty"),
    ],
    ids=["pixels", "at times", "lambda", "activation", "activation of weights"],
)
def test_mixing_for_some_inputs_or_random_numbers_only_is_found(make, engine):
    model = keras.Sequential([layers.Input((3,)), make(), layers.Dense(2)])
    with pytest.raises(UnsupportedLayerError, match="changes another's loss through .*'guilty'"):
        clipped(model, squared_error, X, Y, engine=engine)


def test_random_numbers_past_the_seeds_of_keras_are_rejected_as_such():
    class Noisy(layers.Layer):
        def call(self, x):
            return x + tf.random.normal(tf.shape(x))

    model = keras.Sequential([layers.Input((3,)), Noisy(name="guilty"), layers.Dense(2)])
    with pytest.raises(UnsupportedLayerError, match="Noisy 'guilty' draws random numbers that"):
        clipped(model, squared_error, X, Y)


def test_random_numbers_past_the_seeds_of_keras_are_seen_though_tensorflow_is_seeded():
    """In a function of its own, a seeded operation begins anew at every call that is eager."""

    class Noisy(layers.Layer):
        def call(self, x):
            return tf.vectorized_map(lambda row: row + tf.random.normal([3]), x)

    model = keras.Sequential([layers.Input((3,)), Noisy(name="guilty"), layers.Dense(2)])
    tf.random.set_seed(1)
    try:
        with pytest.raises(UnsupportedLayerError, match="draws random numbers that do not come"):
            clipped(model, squared_error, X, Y)
    finally:
        tf.random.set_seed(None)


def test_inputs_that_a_model_does_not_take_are_passed_over():
    class Unit(layers.Layer):
        def call(self, x):
            with tf.control_dependencies([tf.debugging.assert_less_equal(x, 1.0)]):
                return tf.identity(x)

    model = keras.Sequential([layers.Input((3,)), Unit(), layers.Dense(2)])
    assert np.isfinite(clipped(model, squared_error, np.abs(X) / 9, Y).norms).all()


def of_text(**options):
    x = layers.Input((), dtype="string")
    ids_of = layers.TextVectorization(vocabulary=["cat", "dog"], name="words", **options)(x)
    y = layers.GlobalAveragePooling1D()(layers.Embedding(4, 3)(ids_of))
    return keras.Model(x, layers.Dense(2)(y))


@pytest.mark.parametrize("engine", ["auto", "single_pass", "two_pass", "vectorized"])
def test_texts_padded_to_the_longest_of_the_batch_are_rejected(engine):
    """The average over an example's positions changes with the longest text."""
    texts = np.array(["cat", "dog cat", "cat cat dog", "dog"])
    with pytest.raises(UnsupportedLayerError, match="'words' pads .*output_sequence_length"):
        clipped(of_text(), squared_error, texts, Y, engine=engine)
    model = of_text(output_sequence_length=3)
    assert np.isfinite(clipped(model, squared_error, texts, Y).norms).all()


def test_texts_padded_by_a_layer_that_keras_does_not_track_are_seen_to_mix():
    words = layers.TextVectorization(vocabulary=["cat", "dog"])

    class Hidden(layers.Layer):
        def call(self, x):
            return ops.mean(words(x), axis=1, keepdims=True) + tf.zeros([1, 2])

    model = keras.Sequential([layers.Input((), dtype="string"), Hidden(name="guilty"),
                              layers.Dense(2)])  # fmt: skip
    with pytest.raises(UnsupportedLayerError, match="'guilty'"):
        clipped(model, squared_error, np.array(["cat", "dog cat", "a b c", "dog"]), Y)
