"""What training and evaluation report: metrics of microbatches, and the loss on held-out data."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras.src.losses.loss import reduce_values
from keras.src.trainers import compile_utils

from tfdp.clipping import per_example_loss
from tfdp.clipping.examples import only_examples


def update_metrics(
    model: keras.Model,
    y: Any,
    outputs: Any,
    sample_weight: Any,
    used: tf.Tensor,
    losses: tf.Tensor,
) -> None:
    """Adds a microbatch to the model's loss and compiled metrics.

    Examples outside ``used`` get weight zero in every metric, also in those that Keras would feed
    without weights: shapes stay static and empty steps change nothing.

    Args:
      model: The compiled model.
      y: Targets.
      outputs: The model's outputs, or None where no metric needs them.
      sample_weight: Weights ``[B]`` or ``[B, T]``, or None.
      used: ``[B]`` bool.
      losses: ``[B]``.

    Raises:
      ValueError: A metric cannot be computed from them with one weight per example.
    """
    weight = tf.cast(used, tf.float32)
    # Zeros, since NaN times a weight of zero is NaN.
    y, outputs, losses, sample_weight = only_examples(used, (y, outputs, losses, sample_weight))
    model._loss_tracker.update_state(losses + _penalty(model), sample_weight=weight)
    metrics = model._compile_metrics
    if outputs is None or metrics is None:
        return
    weighted = weight
    if sample_weight is not None:
        by_example = tf.reshape(weight, [-1, *[1] * (sample_weight.shape.rank - 1)])
        weighted = tf.cast(sample_weight, tf.float32) * by_example
    _update(metrics, metrics._flat_metrics, y, outputs, weight)
    _update(metrics, metrics._flat_weighted_metrics, y, outputs, weighted)


def mean_over_examples(
    loss: Any, loss_weights: Any = None, output_names: Any = None
) -> compile_utils.CompileLoss:
    """Returns Keras's compiled loss with every part a mean over examples, for ``evaluate``.

    Keras averages over all real tokens of a batch, so that long texts weigh more. Training clips
    each example, and so averages within each of them first: on examples of several lengths the two
    numbers differ, and their curves could not be compared.

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


def _penalty(model: keras.Model) -> tf.Tensor:
    """What weight regularizers add to the loss, as in Keras: a function of the weights alone."""
    regularized = [v for v in model.trainable_variables if v.regularizer is not None]
    penalties = [tf.cast(v.regularizer(v.value), tf.float32) for v in regularized]
    return tf.add_n(penalties) if penalties else tf.zeros([])


def _update(compiled: Any, metrics: list, y: Any, outputs: Any, weight: tf.Tensor) -> None:
    targets, predictions = compiled._flatten_y(y), compiled._flatten_y(outputs)
    for metric, target, prediction in zip(metrics, targets, predictions, strict=False):
        if metric is None:
            continue
        try:
            metric.update_state(target, prediction, sample_weight=weight)
        except (TypeError, ValueError, tf.errors.OpError) as error:
            shapes = [tuple(leaf.shape[1:]) for leaf in (target, prediction)]
            raise ValueError(
                f"The metrics {[one.name for one in metric.metrics]} cannot all be computed from "
                f"targets of shape {shapes[0]} and outputs of shape {shapes[1]} with one weight "
                "per example. A function must return one value per example, before any mean over "
                f"the batch. {error}"
            ) from error
