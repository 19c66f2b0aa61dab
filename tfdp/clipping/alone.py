"""The losses of functions that users write, each computed from its own example alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfdp.clipping.rows import batch_of_one, map_rows


def losses_alone(
    loss: Callable, y_true: Any, y_pred: Any, sample_weight: Any, compiled: bool
) -> tf.Tensor:
    """Returns ``[B]``: the loss of every example as in a batch that holds nothing else.

    What a function does with a whole batch cannot be seen by trying it: it may mix examples for
    values that were not tried. A function that is given one row cannot.

    Args:
      loss: ``(y_true, y_pred, sample_weight) -> [B]``; see ``per_example_loss``.
      y_true: Targets, nested; every leaf ``[B, ...]``.
      y_pred: The model's outputs, nested.
      sample_weight: None, ``[B]`` or nested like ``y_true``.
      compiled: Whether XLA compiles the call; see ``map_rows``.
    """
    fields = (y_true, y_pred, sample_weight)
    leaves = keras.tree.flatten(fields)
    own = [leaf for leaf in leaves if tf.is_tensor(leaf)]
    if own[0].shape[0] == 1:
        return loss(*fields)
    masks = {
        i: m
        for i, leaf in enumerate(own)
        if (m := keras.src.backend.get_keras_mask(leaf)) is not None
    }
    # From these the losses of Keras are computed, if they get probabilities.
    logits = {i: leaf._keras_logits for i, leaf in enumerate(own) if hasattr(leaf, "_keras_logits")}

    def one(row: tuple[list[tf.Tensor], dict, dict]) -> tf.Tensor:
        values, kept, before = row
        batches = [batch_of_one(value, kept.get(i)) for i, value in enumerate(values)]
        for i, own_logits in before.items():
            batches[i]._keras_logits = own_logits[tf.newaxis]
        found = iter(batches)
        nested = keras.tree.pack_sequence_as(
            fields, [next(found) if tf.is_tensor(leaf) else leaf for leaf in leaves]
        )
        return loss(*nested)[0]

    return map_rows(one, (own, masks, logits), compiled)
