"""Weights that scale or shift numbers: normalizations over one example each, and PReLU."""

from __future__ import annotations

import functools

import keras
import tensorflow as tf

from tfdp.clipping.rules.registry import at_least_float32, register_rule, unbroadcast
from tfdp.clipping.terms import ExplicitTerm

_MODELS = "keras_hub.src.models"
# By name: importing keras_hub takes seconds, and many models do without it.
_SCALED = (
    "llama.llama_layernorm.LlamaLayerNorm",
    "mistral.mistral_layer_norm.MistralLayerNormalization",
    "mixtral.mixtral_layer_norm.MixtralLayerNormalization",
    "phi3.phi3_layernorm.Phi3LayerNorm",
    "qwen.qwen_layernorm.QwenLayerNorm",
    "qwen_moe.qwen_moe_layernorm.QwenMoeLayerNorm",
    "gpt_oss.gpt_oss_layer_norm.GptOssLayerNormalization",
)
_SCALED_FROM_ONE = (  # they multiply by 1 + scale
    "gemma.rms_normalization.RMSNormalization",
    "gemma3.gemma3_layers.RMSNormalization",
)


@register_rule(keras.layers.LayerNormalization)
def layer_normalization_rule(layer, call, tap, inputs):
    if layer.rms_scaling:  # a deprecated variant with another formula: no rule
        return call(inputs)
    values = at_least_float32(inputs)
    values -= tf.stop_gradient(tf.reduce_mean(values, layer.axis, keepdims=True))
    normalized = keras.ops.layer_normalization(values, None, None, layer.axis, layer.epsilon)
    return _scaled(layer, tap, normalized, layer.axis, layer.gamma, layer.beta)


@register_rule(keras.layers.RMSNormalization)
def rms_normalization_rule(layer, call, tap, inputs):
    normalized = keras.ops.rms_normalization(
        at_least_float32(inputs), None, layer.axis, layer.epsilon
    )
    return _scaled(layer, tap, normalized, layer.axis, layer.scale, None, inputs.dtype)


@register_rule(keras.layers.GroupNormalization)
def group_normalization_rule(layer, call, tap, inputs):
    values = at_least_float32(inputs)
    axis = layer.axis % values.shape.rank
    before, channels, after = values.shape[1:axis], values.shape[axis], values.shape[axis + 1 :]
    groups = (layer.groups, channels // layer.groups)
    shape, axes = [-1, *before, *groups, *after], range(1, values.shape.rank + 1)
    split = _nearer_zero(tf.reshape(values, shape), axis)
    mean, variance = tf.nn.moments(split, [i for i in axes if i != axis], keepdims=True)
    inverse = tf.math.rsqrt(variance + layer.epsilon)
    spread = [1, *[1] * len(before), *groups, *[1] * len(after)]
    # As one factor and one offset, like Keras: fewer passes over the inputs than by way of the
    # normalized values, of which no more than sums over positions are needed.
    factor = inverse if layer.gamma is None else inverse * _spread(layer.gamma, spread)
    offset = -mean * factor
    if layer.beta is not None:
        offset += _spread(layer.beta, spread)
    outputs = tf.reshape(split * factor + offset, tf.shape(values))

    def terms(gradient):
        gradient = tf.reshape(at_least_float32(gradient), shape)
        positions = [i for i in axes if i not in (axis, axis + 1)]
        total = tf.reduce_sum(gradient, positions, keepdims=True)
        if layer.gamma is not None:
            along_inputs = tf.reduce_sum(gradient * split, positions, keepdims=True)
            scaled = inverse * (along_inputs - mean * total)
            yield layer.gamma, ExplicitTerm(tf.reshape(scaled, [-1, channels]))
        if layer.beta is not None:
            yield layer.beta, ExplicitTerm(tf.reshape(total, [-1, channels]))

    outputs = tf.ensure_shape(outputs, values.shape)
    return tap(tf.cast(outputs, layer.compute_dtype), terms)


def _nearer_zero(split: tf.Tensor, axis: int) -> tf.Tensor:
    """Takes about the mean off every group, which changes nothing but how much is rounded away.

    Args:
      split: ``[B, ..., groups, channels of a group, ...]``.
      axis: That of the groups.
    """
    place = 1 if axis > 1 else min(3, split.shape.rank - 1)  # in the middle of it is told enough
    some = tf.gather(split, [split.shape[place] // 2], axis=place)
    others = [i for i in range(1, split.shape.rank) if i != axis]
    return split - tf.stop_gradient(tf.reduce_mean(some, others, keepdims=True))


def _scaled(layer, tap, normalized, axis, scale, offset, dtype=None):
    """Applies scale and offset, which lie along ``axis``, and taps the result."""
    rank = normalized.shape.rank
    along = {a % rank for a in (axis if isinstance(axis, list | tuple) else [axis])}
    shape = [size if i in along else 1 for i, size in enumerate(normalized.shape)]
    shared = [i for i in range(1, rank) if i not in along]

    def terms(gradient):
        gradient = at_least_float32(gradient)
        if scale is not None:
            yield scale, ExplicitTerm(tf.reduce_sum(gradient * normalized, axis=shared))
        if offset is not None:
            yield offset, ExplicitTerm(tf.reduce_sum(gradient, axis=shared))

    outputs = normalized
    if scale is not None:
        outputs = outputs * _spread(scale, shape)
    if offset is not None:
        outputs = outputs + _spread(offset, shape)
    return tap(tf.cast(outputs, dtype or layer.compute_dtype), terms)


def _spread(weight: keras.Variable, shape: list[int]) -> tf.Tensor:
    return tf.reshape(at_least_float32(keras.ops.convert_to_tensor(weight)), shape)


def hub_rms_rule(layer, call, tap, inputs, shift):
    """keras_hub's own norms: outputs = inputs / rms(inputs) * (shift + scale)."""
    values = at_least_float32(inputs)
    squares = tf.reduce_mean(values * values, axis=-1, keepdims=True)
    normalized = values * tf.math.rsqrt(squares + layer.epsilon)

    def terms(gradient):
        gradient = at_least_float32(gradient) * normalized
        yield layer.scale, ExplicitTerm(unbroadcast(gradient, layer.scale.shape))

    scale = tf.cast(keras.ops.convert_to_tensor(layer.scale), values.dtype)
    return tap(tf.cast(normalized * (shift + scale), layer.compute_dtype), terms)


for _name in _SCALED:
    register_rule(f"{_MODELS}.{_name}")(functools.partial(hub_rms_rule, shift=0.0))
for _name in _SCALED_FROM_ONE:
    register_rule(f"{_MODELS}.{_name}")(functools.partial(hub_rms_rule, shift=1.0))


@register_rule(keras.layers.PReLU)
def prelu_rule(layer, call, tap, inputs):
    """PReLU: outputs = max(inputs, 0) + slope * min(inputs, 0)."""

    def terms(gradient):
        slopes = at_least_float32(gradient) * tf.minimum(at_least_float32(inputs), 0)
        yield layer.alpha, ExplicitTerm(unbroadcast(slopes, layer.alpha.shape))

    return tap(call(inputs), terms)
