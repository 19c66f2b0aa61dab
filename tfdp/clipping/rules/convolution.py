"""Convolutions over one, two or three axes; grouped, dilated, strided, transposed, depthwise."""

from __future__ import annotations

import math
from collections.abc import Callable

import keras
import tensorflow as tf

from tfdp.clipping.rules.registry import (
    as_positions,
    at_least_float32,
    lora_factors,
    register_rule,
    replaced,
)
from tfdp.clipping.terms import ExplicitTerm, MatMulTerm, Window, convolution_term


@register_rule(keras.layers.Conv1D)
@register_rule(keras.layers.Conv2D)
@register_rule(keras.layers.Conv3D)
def convolution_rule(layer, call, tap, inputs, **kwargs):
    lora = lora_factors(layer, "kernel") if layer.lora_enabled else None
    if lora is not None and layer.groups > 1:  # the factors reach across the groups
        return call(inputs, **kwargs)

    def convolve(x, kernel):
        return keras.ops.conv(
            x,
            kernel,
            strides=list(layer.strides),
            padding=_padding(layer),
            dilation_rate=layer.dilation_rate,
            data_format=layer.data_format,
        )

    def kernel_term(x, d, shape):
        return convolution_term(
            _channels_last(layer, _with_past(layer, x)),
            _channels_last(layer, d),
            _window(layer),
            layer.groups,
            shape,
            _backward(layer, convolve, shape),
        )

    def terms(gradient):
        x, d = at_least_float32(inputs), at_least_float32(gradient)
        if lora is None:
            yield layer._kernel, kernel_term(x, d, layer._kernel.shape)
        else:  # kernel = constant + scale * a @ b: a convolution by a, then a product with b
            a, b, scale = lora
            axis = layer.data_format == "channels_first"
            down = _along_channels(d, scale * tf.transpose(b), axis)
            yield layer.lora_kernel_a, kernel_term(x, down, a.shape)
            up = scale * convolve(_with_past(layer, x), tf.cast(a, x.dtype))
            up, d = (as_positions(_channels_last(layer, t)) for t in (up, d))
            yield layer.lora_kernel_b, MatMulTerm(up, d, tuple(b.shape))
        yield from _bias_terms(layer, gradient)

    return _tapped_before_activation(layer, call, tap, inputs, terms, kwargs)


@register_rule(keras.layers.Conv1DTranspose)
@register_rule(keras.layers.Conv2DTranspose)
@register_rule(keras.layers.Conv3DTranspose)
def transposed_convolution_rule(layer, call, tap, inputs, **kwargs):
    def convolve_back(x, kernel):
        return keras.ops.conv_transpose(
            x,
            kernel,
            strides=list(layer.strides),
            padding=layer.padding,
            output_padding=layer.output_padding,
            dilation_rate=layer.dilation_rate,
            data_format=layer.data_format,
        )

    backward = _backward(layer, convolve_back, layer.kernel.shape)

    def terms(gradient):
        # The layer is the gradient of a convolution that leads from its outputs to its inputs:
        # in its kernel's gradient the two change places.
        yield (
            layer.kernel,
            convolution_term(
                _channels_last(layer, at_least_float32(gradient)),
                _channels_last(layer, at_least_float32(inputs)),
                _window(layer),
                groups=1,
                shape=layer.kernel.shape,
                backward=lambda d, x: backward(x, d),
            ),
        )
        yield from _bias_terms(layer, gradient)

    return _tapped_before_activation(layer, call, tap, inputs, terms, kwargs)


@register_rule(keras.layers.DepthwiseConv1D)
@register_rule(keras.layers.DepthwiseConv2D)
def depthwise_rule(layer, call, tap, inputs, **kwargs):
    def terms(gradient):
        yield layer.kernel, _depthwise_term(layer, inputs, gradient)
        yield from _bias_terms(layer, gradient)

    return _tapped_before_activation(layer, call, tap, inputs, terms, kwargs)


@register_rule(keras.layers.SeparableConv1D)
@register_rule(keras.layers.SeparableConv2D)
def separable_rule(layer, call, tap, inputs, **kwargs):
    def depthwise_terms(gradient):
        yield layer.depthwise_kernel, _depthwise_term(layer, inputs, gradient)

    depthwise = keras.ops.depthwise_conv(
        inputs,
        layer.depthwise_kernel,
        strides=layer.strides,
        padding=layer.padding,
        dilation_rate=layer.dilation_rate,
        data_format=layer.data_format,
    )
    depthwise = tap(depthwise, depthwise_terms)

    def pointwise_terms(gradient):
        x, d = (as_positions(_channels_last(layer, t)) for t in (depthwise, gradient))
        yield layer.pointwise_kernel, MatMulTerm(x, d, tuple(layer.pointwise_kernel.shape))
        yield from _bias_terms(layer, gradient)

    outputs = keras.ops.conv(
        depthwise, layer.pointwise_kernel, padding="valid", data_format=layer.data_format
    )
    if layer.use_bias:
        shape = [1] * outputs.shape.rank
        shape[_channel_axis(layer, outputs)] = layer.filters
        outputs = outputs + keras.ops.reshape(layer.bias, shape)
    outputs = tap(outputs, pointwise_terms)
    return outputs if layer.activation is None else layer.activation(outputs)


def _depthwise_term(
    layer: keras.layers.Layer, inputs: tf.Tensor, gradient: tf.Tensor
) -> ExplicitTerm:
    """Depthwise kernels ``[*size, channels, multiplier]`` are small: formed one by one."""
    x, d = (_channels_last(layer, at_least_float32(t)) for t in (inputs, gradient))
    positions, channels = tuple(d.shape[1:-1]), x.shape[-1]
    d = tf.reshape(d, [-1, math.prod(positions), channels, d.shape[-1] // channels])
    window = _window(layer)
    places = [
        tf.reduce_sum(view[..., tf.newaxis] * d, axis=1) for view in window.views(x, positions)
    ]
    gradients = tf.stack(places, axis=1)
    return ExplicitTerm(
        tf.reshape(gradients, [-1, *window.size, channels, d.shape[-1]]),
        forming=2 * len(places) * math.prod(positions) * channels,  # what places see, times d
    )


def _tapped_before_activation(layer, call, tap, inputs, terms, kwargs):
    activation = layer.activation or (lambda z: z)
    with replaced(layer, "activation", lambda z: activation(tap(z, terms))):
        return call(inputs, **kwargs)


def _bias_terms(layer, gradient):
    if layer.bias is not None:
        channels = _channel_axis(layer, gradient)
        others = [i for i in range(1, gradient.shape.rank) if i != channels]
        yield layer.bias, ExplicitTerm(tf.reduce_sum(at_least_float32(gradient), axis=others))


def _backward(layer: keras.layers.Layer, convolve: Callable, shape: tuple[int, ...]) -> Callable:
    """The kernel's gradient summed over the batch, from channels-last inputs and gradients."""

    def backward(inputs, output_gradients):
        kernel = tf.zeros(shape, inputs.dtype)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(kernel)  # the convolution is linear: the kernel's value does not matter
            outputs = convolve(_as_layer_takes_it(layer, inputs), kernel)
        return tape.gradient(
            outputs, kernel, output_gradients=_as_layer_takes_it(layer, output_gradients)
        )

    return backward


def _padding(layer: keras.layers.Layer) -> str:
    """Causal convolutions are valid ones over inputs with zeros before the first."""
    return "valid" if layer.padding == "causal" else layer.padding


def _with_past(layer: keras.layers.Layer, inputs: tf.Tensor) -> tf.Tensor:
    if layer.padding != "causal":
        return inputs
    return tf.pad(inputs, layer._compute_causal_padding())


def _window(layer: keras.layers.Layer) -> Window:
    rank = layer.rank
    return Window(
        tuple(layer.kernel_size),
        _per_axis(layer.strides, rank),
        _per_axis(layer.dilation_rate, rank),
        _padding(layer),
    )


def _per_axis(value: int | tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (value,) * rank if isinstance(value, int) else tuple(value)


def _channel_axis(layer: keras.layers.Layer, tensor: tf.Tensor) -> int:
    return 1 if layer.data_format == "channels_first" else tensor.shape.rank - 1


def _channels_last(layer, tensor):
    if layer.data_format == "channels_last":
        return tensor
    return tf.transpose(tensor, [0, *range(2, tensor.shape.rank), 1])


def _as_layer_takes_it(layer, tensor):
    if layer.data_format == "channels_last":
        return tensor
    last = tensor.shape.rank - 1
    return tf.transpose(tensor, [0, last, *range(1, last)])


def _along_channels(tensor: tf.Tensor, matrix: tf.Tensor, first: bool) -> tf.Tensor:
    """Multiplies the channels, which come first after the batch or last, by a matrix."""
    return tf.einsum("bc...,cr->br..." if first else "b...c,cr->b...r", tensor, matrix)
