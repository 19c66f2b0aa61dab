"""PReLU: outputs = max(inputs, 0) + slope * min(inputs, 0)."""

import keras
import tensorflow as tf

from tfdp.clipping.rules.registry import at_least_float32, register_rule, unbroadcast
from tfdp.clipping.terms import ExplicitTerm


@register_rule(keras.layers.PReLU)
def prelu_rule(layer, call, tap, inputs):
    def terms(gradient):
        slopes = at_least_float32(gradient) * tf.minimum(at_least_float32(inputs), 0)
        yield layer.alpha, ExplicitTerm(unbroadcast(slopes, layer.alpha.shape))

    return tap(call(inputs), terms)
