"""Keras metrics of a microbatch, padding left out."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

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

    Rows outside ``used`` get weight zero in every metric, also in those that Keras would feed
    without weights: shapes stay static and empty steps change nothing.

    Args:
      model: The compiled model.
      y: Targets.
      outputs: The model's outputs, or None where no metric needs them.
      sample_weight: Weights ``[B]`` or ``[B, T]``, or None.
      used: ``[B]`` bool.
      losses: ``[B]``.

    Raises:
      ValueError: A metric cannot be computed of them with one weight an example.
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
        by_row = tf.reshape(weight, [-1, *[1] * (sample_weight.shape.rank - 1)])
        weighted = tf.cast(sample_weight, tf.float32) * by_row
    _update(metrics, metrics._flat_metrics, y, outputs, weight)
    _update(metrics, metrics._flat_weighted_metrics, y, outputs, weighted)


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
                f"The metrics {[one.name for one in metric.metrics]} cannot all be computed of "
                f"targets of shape {shapes[0]} and outputs of shape {shapes[1]} with one weight an "
                "example. A function must return one value an example, before any mean over the "
                f"batch. {error}"
            ) from error
