"""Arrays of records and their tensors: what array and indexable sources share."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf


def as_leaf(value: Any) -> np.ndarray:
    """Views a value as an array; text becomes an array of objects, as TensorFlow wants it."""
    array = np.asanyarray(value)
    return array.astype(object) if array.dtype.kind in "US" else array


def tensor_dtype(array: np.ndarray) -> tf.DType:
    """Type of the tensors made of an array; floating point is Keras's default, as in Keras."""
    if array.dtype.kind == "O":
        return tf.string
    if array.dtype.kind == "f":
        return tf.as_dtype(keras.config.floatx())
    return tf.as_dtype(array.dtype)


def as_parts(template: dict[str, Any], rows: list[tf.Tensor]) -> tuple[Any, Any, Any]:
    """Packs flat rows as the named parts of a record: `(x, y, sample_weight)`."""
    parts = keras.tree.pack_sequence_as(template, rows)
    weight = parts.get("sample_weight")
    if weight is not None:
        weight = tf.cast(weight, tf.float32)
        while weight.shape.rank > 1 and weight.shape[-1] == 1:  # a column, as Keras takes it
            weight = tf.squeeze(weight, -1)
    return parts["x"], parts.get("y"), weight
