"""Tables: Embedding (outputs = table[ids]), ReversibleEmbedding (also logits = inputs @ table^T).

And keras_hub's PositionEmbedding: outputs = the first T rows of a table, for every example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import keras
import tensorflow as tf

from tfdp.clipping.rules.registry import as_positions, lora_factors, register_rule
from tfdp.clipping.terms import ExplicitTerm, LookupTerm, MatMulTerm


@register_rule(keras.layers.Embedding)
def embedding_rule(layer, call, tap, inputs):
    return tap(call(inputs), _lookup_terms(layer, inputs))


@register_rule(keras.layers.ReversibleEmbedding)
def reversible_embedding_rule(layer, call, tap, inputs, reverse=False):
    if not reverse:
        outputs = call(inputs)
        return tap(outputs, _lookup_terms(layer, inputs))
    if layer.lora_enabled and layer.tie_weights:  # a product with the sum of three matrices
        return call(inputs, reverse=True)

    def terms(gradient):
        x, d = as_positions(inputs), as_positions(gradient)
        if layer.tie_weights:  # the table is [vocabulary, width], transposed for the product
            yield layer._embeddings, MatMulTerm(d, x, tuple(layer._embeddings.shape))
        else:
            yield layer.reverse_embeddings, MatMulTerm(x, d, tuple(layer.reverse_embeddings.shape))

    if layer.reverse_dtype is not None:
        inputs = keras.ops.cast(inputs, layer.reverse_dtype)
    table = layer.embeddings if layer.tie_weights else layer.reverse_embeddings
    table = keras.ops.cast(table, inputs.dtype)
    kernel = keras.ops.transpose(table) if layer.tie_weights else table
    logits = tap(keras.ops.matmul(inputs, kernel), terms)
    cap = layer.logit_soft_cap  # the gradient is needed before the cap
    return logits if cap is None else keras.ops.tanh(logits / cap) * cap


def _lookup_terms(layer: keras.layers.Embedding, inputs: tf.Tensor) -> Callable:
    lora = lora_factors(layer, "embeddings") if layer.lora_enabled else None

    def terms(gradient: tf.Tensor) -> Iterator:
        gradient = as_positions(gradient)
        ids = tf.cast(tf.reshape(inputs, [-1, gradient.shape[1]]), tf.int32)
        ids = tf.where(ids < 0, ids + layer.input_dim, ids)  # Keras counts these from the end
        if lora is None:
            yield layer._embeddings, LookupTerm(ids, gradient, layer.input_dim)
            return
        a, b, scale = lora  # table = constant + scale * a @ b
        down = scale * tf.tensordot(gradient, tf.transpose(b), 1)
        yield layer.lora_embeddings_a, LookupTerm(ids, down, layer.input_dim)
        yield (
            layer.lora_embeddings_b,
            MatMulTerm(scale * tf.gather(a, ids), gradient, tuple(b.shape)),
        )

    return terms


# By name: importing keras_hub takes seconds, and many models do without it.
@register_rule("keras_hub.src.layers.modeling.position_embedding.PositionEmbedding")
def position_embedding_rule(layer, call, tap, inputs, start_index=0, positions=None):
    if positions is not None or not isinstance(start_index, int):  # rows chosen by a tensor
        return call(inputs, start_index=start_index, positions=positions)

    def terms(gradient):
        gradient = as_positions(gradient)
        after = layer.sequence_length - start_index - gradient.shape[1]
        yield (
            layer.position_embeddings,
            ExplicitTerm(tf.pad(gradient, [(0, 0), (start_index, after), (0, 0)])),
        )

    return tap(call(inputs, start_index=start_index), terms)
