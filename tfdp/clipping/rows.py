"""A function of one example, applied to every example of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf


def map_rows(function: Callable, rows: Any, compiled: bool) -> Any:
    """Applies a function to every row: side by side under XLA, one after the other without it.

    Mapped side by side, products turn into ``tf.matmul`` of ``[B, 1, T, p]`` with ``[p, q]``. On
    some CPUs TensorFlow's own kernel for such broadcast products (oneDNN, TensorFlow 2.21)
    returns garbage; XLA's is right.
    """
    if compiled:
        return tf.vectorized_map(function, rows)
    one = tf.nest.map_structure(lambda row: row[0], rows)
    specs = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), function(one))
    return tf.map_fn(function, rows, fn_output_signature=specs)


def batch_of_one(row: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """Returns a row as a batch, with the row of its Keras mask."""
    batch = row[tf.newaxis]
    if mask is not None:
        keras.src.backend.set_keras_mask(batch, mask[tf.newaxis])
    return batch


def with_mask_of(source: tf.Tensor, tensor: tf.Tensor) -> tf.Tensor:
    """Returns the tensor with the Keras mask that another one carries."""
    mask = keras.src.backend.get_keras_mask(source)
    if mask is not None:
        keras.src.backend.set_keras_mask(tensor, mask)
    return tensor
