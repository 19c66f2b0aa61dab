"""Normalizations: outputs = normalized(inputs) * scale + offset, over one example each."""

from __future__ import annotations

import keras
import tensorflow as tf

from tfdp.clipping.rules.registry import at_least_float32, register_rule
from tfdp.clipping.terms import ExplicitTerm


@register_rule(keras.layers.LayerNormalization)
def layer_normalization_rule(layer, call, tap, inputs):
    if layer.rms_scaling:  # a deprecated variant with another formula: no rule
        return call(inputs)
    normalized = keras.ops.layer_normalization(
        at_least_float32(inputs), None, None, layer.axis, layer.epsilon
    )
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
    groups = layer.groups
    split = tf.reshape(values, [-1, *before, groups, channels // groups, *after])
    others = [i for i in range(1, split.shape.rank) if i != axis]
    mean, variance = tf.nn.moments(split, others, keepdims=True)
    normalized = (split - mean) * tf.math.rsqrt(variance + layer.epsilon)
    normalized = tf.reshape(normalized, tf.shape(values))
    normalized = tf.ensure_shape(normalized, values.shape)
    return _scaled(layer, tap, normalized, axis, layer.gamma, layer.beta)


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
        outputs = outputs * _spread(scale, shape, outputs.dtype)
    if offset is not None:
        outputs = outputs + _spread(offset, shape, outputs.dtype)
    return tap(tf.cast(outputs, dtype or layer.compute_dtype), terms)


def _spread(weight: keras.Variable, shape: list[int], dtype: tf.DType) -> tf.Tensor:
    return tf.reshape(tf.cast(keras.ops.convert_to_tensor(weight), dtype), shape)
