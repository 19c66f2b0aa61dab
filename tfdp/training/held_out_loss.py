"""The loss that ``evaluate`` reports: the same quantity as the one that ``fit`` reports."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras.src.losses.loss import reduce_values
from keras.src.trainers import compile_utils

from tfdp.clipping import per_example_loss


def mean_over_examples(
    loss: Any, loss_weights: Any = None, output_names: Any = None
) -> compile_utils.CompileLoss:
    """Returns Keras's compiled loss, every part of it a mean over examples.

    Keras averages over all real tokens of a batch, so that long texts weigh more. Training clips
    example by example, and so averages within each of them first: on examples of several lengths
    the two are other numbers, and curves of both would not compare.

    Args:
      loss: As in ``keras.Model.compile``.
      loss_weights: As there.
      output_names: Names of the model's outputs.
    """
    parts = keras.tree.map_structure(lambda one: None if one is None else _Mean(one), loss)
    return compile_utils.CompileLoss(parts, loss_weights, output_names=output_names)


class _Mean(keras.losses.Loss):
    """A Keras loss averaged within every example, then over examples."""

    def __init__(self, loss: Any):
        found = keras.losses.get(loss)
        super().__init__(name=getattr(found, "name", None) or getattr(found, "__name__", None))
        self._by_example = per_example_loss(loss)

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tf.Tensor:
        return reduce_values(self._by_example(y_true, y_pred, sample_weight))
