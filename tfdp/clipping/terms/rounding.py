"""Squared norms that rounding cannot push below what is really summed.

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

# Rounding errors of a sum of products in units of the machine epsilon: a few, and some more where
# the inner products are long.
_ERRORS, _BY_LENGTH, _ALONG = 2.0, 0.125, 0.25

# The square of a norm of 1e-12, which is nothing to any clip norm.
_NEGLIGIBLE = 2.0**-80


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


def raised_along(squares: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
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
