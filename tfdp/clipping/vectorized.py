"""Per-example gradients of any model, by mapping the gradient of one example over the batch.

Holds B copies of the gradient. It is the reference for the single-pass engine, and the exact
fallback for models with layers that have no rule.
"""

from __future__ import annotations

import keras
import tensorflow as tf

from tfdp.clipping.examples import Batch, map_examples
from tfdp.clipping.factors import PerExampleGradients
from tfdp.clipping.forward import Forward
from tfdp.clipping.terms import ExplicitTerm


def vectorized(
    forward: Forward, weights: list, state: list, batch: Batch, compiled: bool = True
) -> PerExampleGradients:
    """Returns the gradients of every example, formed explicitly.

    Args:
      forward: The model and its loss.
      weights: Values of ``forward.trainable``.
      state: Values of ``forward.state``.
      batch: Rows of static shape.
      compiled: Whether XLA compiles the call; see ``map_examples``.
    """
    rows = tf.range(tf.shape(batch.mask)[0])
    fields = (batch.x, batch.y, batch.sample_weight)
    leaves = [leaf for leaf in keras.tree.flatten(fields) if leaf is not None]

    def one_example(row_and_leaves):
        row, *own = row_and_leaves
        own = iter([leaf[tf.newaxis] for leaf in own])
        x, y, weight = keras.tree.map_structure(
            lambda leaf: None if leaf is None else next(own), fields
        )
        seed = tf.random.experimental.stateless_fold_in(batch.seed, row)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            with keras.StatelessScope(forward.mapping(weights, state, seed)):
                loss, outputs = forward.losses(x, y, weight)
            scaled = loss * tf.cast(forward.loss_scale, loss.dtype)
        gradients = tape.gradient(scaled, weights, unconnected_gradients="zero")
        outputs = keras.tree.map_structure(lambda leaf: leaf[0], outputs)
        return loss[0], outputs, [tf.convert_to_tensor(gradient) for gradient in gradients]

    losses, outputs, gradients = map_examples(one_example, [rows, *leaves], compiled)
    terms = [ExplicitTerm(_static(gradient, batch)) for gradient in gradients]
    return PerExampleGradients(list(terms), tf.where(batch.mask, losses, 0), outputs)


def _static(gradient: tf.Tensor, batch: Batch) -> tf.Tensor:
    return tf.ensure_shape(gradient, [batch.mask.shape[0], *gradient.shape[1:]])
