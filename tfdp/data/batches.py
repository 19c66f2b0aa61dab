"""A source as Keras batches, for `evaluate` and `predict`."""

from typing import Any

import keras
import tensorflow as tf

from tfdp import checks
from tfdp.data.source import ExampleSource


def batches(source: ExampleSource, batch_size: int) -> tf.data.Dataset:
    """Every readable record of a source once, in order, in batches as Keras takes them.

    Args:
      source: The records, fetched as in update 0.
      batch_size: Records in a batch; the last batch may hold fewer, and records that cannot be
        read are left out, as weights of zero would still count in Keras's means.

    Returns:
      A data set of `(x,)`, `(x, y)` or `(x, y, sample_weight)`.

    Raises:
      TypeError: If `batch_size` is not a whole number.
      ValueError: If it is below 1.
    """
    batch_size = checks.positive_int("batch_size", batch_size)
    count = len(source)

    def fetch(start: tf.Tensor) -> tuple[Any, ...]:
        indices = tf.range(start, tf.minimum(start + batch_size, count))
        x, y, sample_weight, valid = source.fetch(indices, tf.constant(0, tf.int64))
        parts: tuple[Any, ...] = (x, y, sample_weight)
        if sample_weight is None:
            parts = (x,) if y is None else (x, y)
        return keras.tree.map_structure(lambda rows: tf.boolean_mask(rows, valid), parts)

    starts = tf.data.Dataset.range(0, count, batch_size)
    return starts.map(fetch, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
