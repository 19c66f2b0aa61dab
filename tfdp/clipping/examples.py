"""The examples of a microbatch, and functions of one example applied to all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfdp.clipping.terms import select_examples


class Batch(NamedTuple):
    """The examples of one microbatch, always of the same static shape.

    Attributes:
      x: Inputs, nested as the model takes them; every leaf ``[B, ...]``.
      y: Targets, nested; every leaf ``[B, ...]``.
      sample_weight: None, ``[B]`` or nested like ``y``.
      mask: ``[B]`` bool; False marks padding, which contributes exactly zero.
      seed: ``[2]`` int32, from which dropout and its like draw.
    """

    x: Any
    y: Any
    sample_weight: Any
    mask: tf.Tensor
    seed: tf.Tensor


def without_padding(batch: Batch) -> Batch:
    """Sets the floating-point inputs of padding, which may hold anything, even NaN, to zero."""
    fields = (batch.x, batch.y, batch.sample_weight)
    x, y, weight = only_examples(batch.mask, fields)
    return batch._replace(x=x, y=y, sample_weight=weight)


def only_examples(mask: tf.Tensor, nested: Any) -> Any:
    """Sets floating-point numbers of examples outside the mask ([B] bool) to zero, by a select."""

    def clean(leaf):
        if not tf.is_tensor(leaf) or not leaf.dtype.is_floating:
            return leaf
        return select_examples(mask, leaf)

    return keras.tree.map_structure(clean, nested)


def map_examples(function: Callable, examples: Any, compiled: bool) -> Any:
    """Applies a function to every example: side by side under XLA, one by one without it.

    Mapped side by side, products turn into ``tf.matmul`` of ``[B, 1, T, p]`` with ``[p, q]``. On
    some CPUs TensorFlow's own kernel for such broadcast products (oneDNN, TensorFlow 2.21)
    returns garbage; XLA's is right.

    Args:
      function: Takes the tensors of one example, nested like ``examples``, without a batch axis.
      examples: Nested tensors ``[B, ...]``.
      compiled: Whether XLA compiles the call.
    """
    if compiled:
        return tf.vectorized_map(function, examples)
    one = tf.nest.map_structure(lambda leaf: leaf[0], examples)
    specs = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), function(one))
    return tf.map_fn(function, examples, fn_output_signature=specs)


def batch_of_one(example: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """Returns an example's tensor as a batch, with the example's own Keras mask."""
    batch = example[tf.newaxis]
    if mask is not None:
        keras.src.backend.set_keras_mask(batch, mask[tf.newaxis])
    return batch


def with_mask_of(source: tf.Tensor, tensor: tf.Tensor) -> tf.Tensor:
    """Returns the tensor with the Keras mask that another one carries."""
    mask = keras.src.backend.get_keras_mask(source)
    if mask is not None:
        keras.src.backend.set_keras_mask(tensor, mask)
    return tensor
