"""The engine equals a loop over single examples for every kind of convolution."""

import keras
import pytest
import tensorflow as tf

from tests.clipping.models import clipped, floats, perturbed
from tests.clipping.reference import check
from tfdp.clipping import UnsupportedLayerError
from tfdp.clipping.terms import ConvolutionTerm, MatMulTerm, Window, convolution_term

layers = keras.layers

CASES = {
    "1d": (lambda: layers.Conv1D(3, 3, strides=2), (9, 2)),
    "1d causal, dilated": (lambda: layers.Conv1D(3, 3, dilation_rate=2, padding="causal"), (7, 2)),
    "1d same, even, strided": (lambda: layers.Conv1D(3, 4, strides=3, padding="same"), (8, 2)),
    "2d": (lambda: layers.Conv2D(3, (3, 2), activation="relu"), (6, 5, 2)),
    "2d same, strided": (lambda: layers.Conv2D(3, 3, strides=(2, 1), padding="same"), (6, 5, 2)),
    "2d dilated": (lambda: layers.Conv2D(3, 2, dilation_rate=(2, 3), use_bias=False), (6, 7, 2)),
    "2d in groups": (lambda: layers.Conv2D(6, 3, groups=2, padding="same"), (5, 4, 4)),
    "2d patches": (lambda: layers.Conv2D(4, 2, strides=2), (6, 6, 3)),
    "2d patches that do not fill it": (lambda: layers.Conv2D(4, (2, 3), (2, 3)), (5, 7, 3)),
    "2d patches, padded": (lambda: layers.Conv2D(4, 3, 3, padding="same"), (7, 5, 3)),
    "2d single places": (lambda: layers.Conv2D(4, 1, activation="tanh"), (4, 3, 5)),
    "1d patches": (lambda: layers.Conv1D(4, 3, strides=3), (10, 2)),
    "3d patches": (lambda: layers.Conv3D(2, 2, strides=2), (4, 4, 2, 3)),
    "2d patches transposed": (lambda: layers.Conv2DTranspose(3, 2, strides=2), (3, 4, 2)),
    "2d gaps between the patches": (lambda: layers.Conv2D(4, 2, 3, padding="same"), (8, 6, 3)),
    "2d step beyond the kernel": (lambda: layers.Conv2D(4, 1, strides=2), (5, 6, 3)),
    "3d": (lambda: layers.Conv3D(2, (2, 3, 1), padding="same"), (3, 4, 3, 2)),
    "1d transposed": (lambda: layers.Conv1DTranspose(3, 3, strides=2), (5, 2)),
    "2d transposed, same": (
        lambda: layers.Conv2DTranspose(3, 3, strides=(2, 3), padding="same"),
        (3, 4, 2),
    ),
    "2d transposed, padded": (
        lambda: layers.Conv2DTranspose(2, 3, strides=2, output_padding=1),
        (3, 3, 2),
    ),
    "3d transposed": (lambda: layers.Conv3DTranspose(2, 2, padding="same"), (3, 2, 3, 2)),
    "1d depthwise": (lambda: layers.DepthwiseConv1D(3, depth_multiplier=2), (7, 3)),
    "2d depthwise": (
        lambda: layers.DepthwiseConv2D(3, strides=2, padding="same", depth_multiplier=2),
        (6, 5, 3),
    ),
    "1d separable": (lambda: layers.SeparableConv1D(4, 3, activation="relu"), (7, 3)),
    "2d separable": (
        lambda: layers.SeparableConv2D(4, 3, depth_multiplier=2, padding="same", strides=2),
        (6, 5, 3),
    ),
}


def build_of(make, shape):
    def build():
        return perturbed(keras.Sequential([layers.Input(shape), make()]))

    return build


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_equals_the_loop(case):
    make, shape = case
    build = build_of(make, shape)
    check(build, floats(3, *shape), floats(3, *build().output_shape[1:]), engines=["single_pass"])


@pytest.mark.parametrize("method", ["explicit", "streamed", "ghost"])
@pytest.mark.parametrize(
    "name",
    ["1d same, even, strided", "2d same, strided", "2d in groups", "2d transposed, same", "3d"],
)
@pytest.mark.parametrize("by_channel", [True, False])
def test_every_method_gives_the_same_norm(monkeypatch, method, name, by_channel):
    monkeypatch.setattr(ConvolutionTerm, "method", method)
    monkeypatch.setattr(
        "tfdp.clipping.terms.convolution_terms._FEW_CHANNELS", 4 if by_channel else 0
    )
    make, shape = CASES[name]
    build = build_of(make, shape)
    check(build, floats(3, *shape), floats(3, *build().output_shape[1:]), engines=["single_pass"])


def test_patches_are_one_product_however_many_places_they_have():
    def term(size):
        window = Window((size, size), (size, size), (1, 1), "valid")
        inputs, gradients = tf.ones([2, 32, 32, 3]), tf.ones([2, 32 // size, 32 // size, 5])
        return convolution_term(inputs, gradients, window, 1, (size, size, 3, 5), None)

    def operations(size):
        with tf.Graph().as_default() as graph:
            term(size).squared_norm()
        return len(graph.get_operations())

    assert isinstance(term(16), MatMulTerm)
    assert operations(4) < 80 and operations(16) < 80


def test_under_xla():
    def build():
        stack = [layers.Input((6, 6, 4)), layers.Conv2D(4, 3, strides=2, groups=2)]
        return perturbed(keras.Sequential([*stack, layers.SeparableConv2D(3, 2)]))

    check(build, floats(3, 6, 6, 4), floats(3, 1, 1, 3), engines=["single_pass"], jit_compile=True)


def test_what_tensorflow_differentiates_wrongly_is_not_blamed_on_a_rule():
    layer = layers.Conv2D(8, 3, groups=2, data_format="channels_first")
    model = keras.Sequential([layers.Input((4, 9, 10)), layer, layers.Flatten(), layers.Dense(2)])
    with pytest.raises(UnsupportedLayerError, match="wrong on CPUs.*channels_last"):
        clipped(model, "mse", floats(3, 4, 9, 10), floats(3, 2))


def test_kernels_whose_size_is_computed_are_no_obstacle():
    """Such as that of Keras's RandomElasticTransform, which has no trainable weights."""

    class Blur(layers.Layer):
        def call(self, x):
            size = tf.reduce_max(tf.shape(x)) // 3  # which no shape shows
            return tf.nn.conv2d(x, tf.ones([size, size, 1, 1]), 1, "SAME")

    model = keras.Sequential([layers.Input((6, 6, 1)), Blur(), layers.Flatten(), layers.Dense(2)])
    found = clipped(model, keras.losses.MeanSquaredError(), floats(4, 6, 6, 1), floats(4, 2))
    assert float(tf.reduce_min(found.norms)) > 0
