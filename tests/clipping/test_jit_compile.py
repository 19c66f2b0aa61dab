"""What XLA compiles where nobody says."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.clipping.models import floats
from tfdp.clipping import (
    Batch,
    ClippedGradient,
    UnsupportedLayerError,
    clipped_gradient_sum,
    per_example_loss,
)

layers = keras.layers


def convolutional(**options):
    stack = [layers.Input((8, 8, 3)), layers.Conv2D(6, 3, padding="same", **options)]
    return keras.Sequential([*stack, layers.GlobalAveragePooling2D(), layers.Dense(2)])


def attentive():
    stack = [layers.Input((8, 8, 3)), layers.Conv2D(4, 4, strides=4), layers.Reshape((4, 4))]
    return keras.Sequential([*stack, layers.Dense(64), layers.Dense(64), layers.Dense(2)])


def own_layer():
    class Scaled(layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight(shape=(2,))

        def call(self, x):
            return x * self.scale

    return keras.Sequential([convolutional(), Scaled()])


class PythonCode(layers.Layer):
    def call(self, x):
        twice = tf.numpy_function(lambda values: values + values, [x], x.dtype)
        return tf.ensure_shape(twice, x.shape) * x


class Nearest(layers.Layer):
    def call(self, x):
        larger = tf.image.resize(x[:, :, tf.newaxis, tf.newaxis], [8, 1], "nearest")
        return larger[:, :, 0, 0]


class InLoop(PythonCode):
    def call(self, x):
        body = super().call
        return tf.while_loop(lambda _: True, lambda y: [body(y)], [x], maximum_iterations=1)[0]


def of_text():
    words = layers.Input((1,), dtype="string")
    ids = layers.StringLookup(vocabulary=["a", "b", "c"])(words)
    return keras.Model(words, layers.Dense(2)(layers.Flatten()(layers.Embedding(4, 3)(ids))))


def of_numbers(layer):
    return keras.Sequential([keras.Input((4,)), layers.Dense(4), layer, layers.Dense(2)])


def compiled(model, jit_compile="auto"):
    """Whether XLA compiles what sums the clipped gradients."""
    function = ClippedGradient(model, per_example_loss("mse"), 1.0, jit_compile=jit_compile)
    x, y = tf.zeros([2, 8, 8, 3]), tf.zeros([2, *model.output_shape[1:]])
    function.check(Batch(x, y, None, tf.ones([2], tf.bool), tf.constant([0, 1])))
    (plan,) = function._plans.values()
    return function._compiled(plan)


def test_networks_of_plain_convolutions_are_not_compiled_on_cpus(monkeypatch):
    assert not compiled(convolutional())
    assert compiled(convolutional(), jit_compile=True)
    assert not compiled(attentive(), jit_compile=False)
    devices = [*tf.config.list_logical_devices(), tf.config.LogicalDevice("/device:GPU:0", "GPU")]
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda: devices)
    assert compiled(convolutional())


def test_few_depthwise_convolutions_among_products_decide():
    stack = [layers.Dense(64), layers.DepthwiseConv2D(3), layers.Dense(64)]
    stack = [layers.Input((8, 8, 3)), *stack, layers.GlobalAveragePooling2D()]
    assert not compiled(keras.Sequential([*stack, layers.Dense(2)]))


def test_convolutions_whose_gradients_tensorflow_lacks_are_compiled():
    assert compiled(convolutional(groups=3))


def test_convolutions_that_tensorflow_may_get_wrong_are_compiled():
    assert compiled(convolutional(strides=(1, 2)))


def test_patches_before_other_layers_are_compiled():
    assert compiled(attentive())


@pytest.mark.filterwarnings("ignore:No rule for")
def test_what_would_be_mapped_example_after_example_is_compiled():
    assert compiled(own_layer())


def test_both_ways_give_the_same_sum():
    model, x, y = convolutional(), floats(5, 8, 8, 3), floats(5, 2, seed=1)
    by_default, by_xla = (
        clipped_gradient_sum(model, "mse", x, y, 0.1, jit_compile=jit) for jit in ("auto", True)
    )
    np.testing.assert_allclose(by_default.norms, by_xla.norms, rtol=1e-5)
    for a, b in zip(by_default.gradients, by_xla.gradients, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "model, x, named",
    [
        (lambda: of_numbers(PythonCode()), floats(3, 4), "PyFunc"),
        (lambda: of_numbers(InLoop()), floats(3, 4), "PyFunc"),
        (lambda: of_numbers(Nearest()), floats(3, 4), "ResizeNearestNeighborGrad"),
        (of_text, np.array([["a"], ["c"], ["?"]]), "text"),  # of one row, it ended the process
    ],
    ids=["code", "code in a loop", "gradient", "text"],
)
def test_what_xla_has_no_form_of_runs_without_it(model, x, named):
    model, y = model(), floats(3, 2, seed=1)
    with pytest.warns(UserWarning, match=f"not compiled by XLA, which does not support .*{named}"):
        found = clipped_gradient_sum(model, "mse", x, y, 0.1, microbatch_size=1)
    without = clipped_gradient_sum(model, "mse", x, y, 0.1, jit_compile=False)
    np.testing.assert_allclose(found.norms, without.norms, rtol=1e-5)


@pytest.mark.filterwarnings("error:.*not compiled by XLA")
def test_what_xla_lacks_the_gradient_of_is_compiled_where_none_is_taken():
    model = keras.Sequential([keras.Input((4,)), Nearest(), layers.Dense(2)])
    assert clipped_gradient_sum(model, "mse", floats(3, 4), floats(3, 2), 0.1).norms.shape == 3


@pytest.mark.parametrize("jit_compile", [True, False])
def test_code_of_python_that_has_a_gradient_is_differentiated_once(jit_compile):
    class Code(layers.Layer):
        def call(self, x):
            return tf.ensure_shape(tf.py_function(lambda v: v * v, [x], x.dtype), x.shape)

    class Same(layers.Layer):
        def call(self, x):
            return x * x

    model, other = of_numbers(Code()), of_numbers(Same())
    other.set_weights(model.get_weights())
    x, y = floats(3, 4), floats(3, 2, seed=1)
    found = clipped_gradient_sum(model, "mse", x, y, 0.1, jit_compile=jit_compile)
    exact = clipped_gradient_sum(other, "mse", x, y, 0.1)
    np.testing.assert_allclose(found.norms, exact.norms, rtol=1e-5)
    with pytest.raises(UnsupportedLayerError, match='EagerPyFunc.*engine="single_pass"'):
        clipped_gradient_sum(model, "mse", x, y, 0.1, engine="two_pass")


def test_losses_that_xla_has_no_form_of_run_without_it():
    def by_code(y_true, y_pred):
        ones = tf.numpy_function(np.ones_like, [y_pred], y_pred.dtype)
        return tf.reduce_sum((y_true - y_pred) ** 2 * tf.ensure_shape(ones, y_pred.shape), -1)

    model, x, y = of_numbers(layers.ReLU()), floats(3, 4), floats(3, 2, seed=1)
    with pytest.warns(UserWarning, match="not compiled by XLA, which does not support PyFunc"):
        found = clipped_gradient_sum(model, by_code, x, y, 0.1)
    without = clipped_gradient_sum(model, "mse", x, y, 0.1, jit_compile=False)
    np.testing.assert_allclose(found.norms, 2 * without.norms, rtol=1e-5)


def test_another_value_is_rejected():
    with pytest.raises(ValueError, match="jit_compile='yes'"):
        compiled(convolutional(), jit_compile="yes")
