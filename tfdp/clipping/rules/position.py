"""keras_hub's PositionEmbedding: outputs = the first T rows of a table, for every example."""

import tensorflow as tf

from tfdp.clipping.rules.registry import as_positions, register_rule
from tfdp.clipping.terms import ExplicitTerm


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
