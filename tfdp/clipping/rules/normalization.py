"""LayerNormalization: outputs = normalized(inputs) * gamma + beta."""

import keras
import tensorflow as tf

from tfdp.clipping.rules.registry import at_least_float32, register_rule
from tfdp.clipping.terms import ExplicitTerm


@register_rule(keras.layers.LayerNormalization)
def layer_normalization_rule(layer, call, tap, inputs):
    if layer.rms_scaling:  # a deprecated variant with another formula: no rule
        return call(inputs)

    def terms(gradient):
        gradient = at_least_float32(gradient)
        # Axes that gamma and beta are shared over, the batch axis left out.
        kept = {axis % inputs.shape.rank for axis in layer.axis}
        shared = [axis for axis in range(1, inputs.shape.rank) if axis not in kept]
        if layer.gamma is not None:
            normalized = keras.ops.layer_normalization(
                at_least_float32(inputs),
                None,
                None,
                layer.axis,
                layer.epsilon,
            )
            yield layer.gamma, ExplicitTerm(tf.reduce_sum(gradient * normalized, axis=shared))
        if layer.beta is not None:
            yield layer.beta, ExplicitTerm(tf.reduce_sum(gradient, axis=shared))

    return tap(call(inputs), terms)
