"""Embedding: outputs = table[ids]."""

import keras
import tensorflow as tf

from tfdp.clipping.rules.registry import as_positions, register_rule
from tfdp.clipping.terms import LookupTerm


@register_rule(keras.layers.Embedding)
def embedding_rule(layer, call, tap, inputs):
    def terms(gradient):
        gradient = as_positions(gradient)
        ids = tf.cast(tf.reshape(inputs, [-1, gradient.shape[1]]), tf.int32)
        yield layer._embeddings, LookupTerm(ids, gradient, layer.input_dim)

    return tap(call(inputs), terms)
