"""Ghost norms (Li et al. 2021), and squared norms that rounding cannot push below what is summed.

An example may be built so that large products cancel. Then the little that is left, and the norm
computed from it, are rounding errors; a norm of zero computed from them would leave the example
unclipped. Every squared norm is therefore raised by the rounding that its computation, and that of
the sum, can hide: nothing next to an ordinary norm, and a bound for a cancelling one. Likewise an
example may have inputs so small that their squares are taken for zero, and targets so large that
its gradient is not.
"""

from __future__ import annotations

import math

import tensorflow as tf

#: Up to so many positions, a ghost norm is computed in float64.
FEW_POSITIONS = 4

# Vectors as long as this, or so many times as long as they are many, such as logits over a
# vocabulary, are multiplied a few examples at a time, so that they stay in a core's cache. Where
# they are so long, XLA packs the vectors of all examples first, on CPUs in memory that it takes
# anew from the system at every step. More parts would take long to compile.
_LONG, _LONG_FOR_FEW = 2**14, 192
_NUMBERS_AT_ONCE = 2**19
_MOST_PARTS = 32

# Rounding errors of a sum of products in units of the machine epsilon: a few, and some more where
# the inner products are long.
_ERRORS, _BY_LENGTH, _ALONG = 2.0, 0.125, 0.25

# The square of a norm of 1e-12, which is nothing to any clip norm.
_NEGLIGIBLE = 2.0**-80


def gram_matrices(values: tf.Tensor) -> tf.Tensor:
    """``[B, ..., T, n] -> [B, ..., T, T]``, ``B`` static: ``values @ values^T``."""
    examples, (positions, length) = values.shape[0], values.shape[-2:]
    numbers = math.prod(values.shape[1:])
    if length < min(_LONG, _LONG_FOR_FEW * positions) or examples * numbers <= _NUMBERS_AT_ONCE:
        return tf.matmul(values, values, transpose_b=True)
    at_once = max(_NUMBERS_AT_ONCE // numbers, -(-examples // _MOST_PARTS))
    parts = (values[start : start + at_once] for start in range(0, examples, at_once))
    return tf.concat([tf.matmul(part, part, transpose_b=True) for part in parts], axis=0)


def squared_ghost_norm(inputs: tf.Tensor, output_gradients: tf.Tensor) -> tf.Tensor:
    """Returns ``|inputs[i]^T output_gradients[i]|^2`` for ``[B, T, p]`` and ``[B, T, q]``.

    ``|sum_t x_t d_t^T|^2 = sum_{t,t'} (x_t . x_t') (d_t . d_t')``: Li et al. 2021, "Large Language
    Models Can Be Strong Differentially Private Learners", eq. 4.
    """
    if inputs.shape[1] <= FEW_POSITIONS:
        return _squared_ghost_norm_in_float64(inputs, output_gradients)
    gram_in, gram_out = gram_matrices(inputs), gram_matrices(output_gradients)
    squares = tf.linalg.trace(gram_in), tf.linalg.trace(gram_out)  # |inputs|^2, |gradients|^2
    lengths = inputs.shape[2], output_gradients.shape[2]
    hidden = hidden_by_underflow(*squares, *(inputs.shape[1] * n for n in lengths))
    product = tf.reduce_sum(gram_in * gram_out, axis=[1, 2])
    return raised_gram(product, math.prod(squares), sum(lengths)) + hidden


def _squared_ghost_norm_in_float64(inputs: tf.Tensor, output_gradients: tf.Tensor) -> tf.Tensor:
    """The same in float64, which costs nothing at few positions: those of siamese towers cancel."""

    def gram(values: tf.Tensor) -> tf.Tensor:
        values = tf.cast(values, tf.float64)
        # Not a matrix product: TPUs have none in float64.
        return tf.reduce_sum(values[:, :, tf.newaxis] * values[:, tf.newaxis], axis=-1)

    gram_in, gram_out = gram(inputs), gram(output_gradients)
    squares = tf.maximum(tf.reduce_sum(gram_in * gram_out, axis=[1, 2]), 0)
    scale = tf.linalg.trace(gram_in) * tf.linalg.trace(gram_out)
    if inputs.dtype == tf.float32:
        squares = _raised_along(squares, scale)
    return raised_product(tf.cast(squares, inputs.dtype), tf.cast(scale, inputs.dtype))


def raised_gram(squares: tf.Tensor, scale: tf.Tensor, length: int) -> tf.Tensor:
    """Raises squared norms that were computed as sums of products of inner products.

    Args:
      squares: ``[B]``; may be negative from rounding.
      scale: ``[B]``: the same sum if nothing cancelled, at most.
      length: Numbers in the inner products.
    """
    errors = _ERRORS + _BY_LENGTH * math.sqrt(length)
    return tf.maximum(squares, tf.zeros([], squares.dtype)) + errors * _epsilon(squares) * scale


def raised_product(squares: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """Raises squared norms of explicit gradients where the sum is formed in another way."""
    return squares + (4 * _ERRORS * _epsilon(squares)) ** 2 * scale


def _raised_along(squares: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """Raises exact squared norms by the part of the sum's rounding that lies along the gradient.

    ``raised_product`` covers what lies across it, which adds to the squares. Of the rounding of
    all entries, to either side, little lies along the gradient.
    """
    return tf.square(tf.sqrt(squares) + _ALONG * 2.0**-23 * tf.sqrt(scale))


def hidden_by_underflow(
    squares_in: tf.Tensor, squares_out: tf.Tensor, numbers_in: int, numbers_out: int
) -> tf.Tensor:
    """Returns what the product of two sums of squares, or of inner products, may lack.

    Devices take products below the smallest normal number for zero. Next to such inputs of an
    example there may be output gradients so large that its gradient is of any size.

    Args:
      squares_in: ``[B, ...]``: the sum of the inputs' squares.
      squares_out: ``[B, ...]``: that of the output gradients' squares.
      numbers_in: How many products were added up to the former, over all inner products.
      numbers_out: How many to the latter.
    """
    smallest = 2.0**-1022 if squares_in.dtype == tf.float64 else 2.0**-126
    hidden = numbers_in * smallest * squares_out + numbers_out * smallest * squares_in
    return tf.nn.relu(hidden - _NEGLIGIBLE)  # examples without a gradient keep a norm of zero


def _epsilon(values: tf.Tensor) -> float:
    return 2.0**-52 if values.dtype == tf.float64 else 2.0**-23
