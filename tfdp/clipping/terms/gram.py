"""Inner products of an example's rows with each other."""

from __future__ import annotations

import math

import tensorflow as tf

# Rows as long as this, or so many times as long as they are many, such as logits over a vocabulary,
# are multiplied a few examples at a time, so that they stay in a core's cache. XLA packs the rows
# of all examples first where they are so long, on CPUs in memory that it takes anew from the system
# at every step. More parts would take long to compile.
_LONG, _LONG_FOR_FEW = 2**14, 192
_NUMBERS_AT_ONCE = 2**19
_MOST_PARTS = 32


def gram_matrices(values: tf.Tensor) -> tf.Tensor:
    """``[B, ..., T, n] -> [B, ..., T, T]``, ``B`` static: ``values @ values^T``."""
    rows, (positions, length) = values.shape[0], values.shape[-2:]
    numbers = math.prod(values.shape[1:])
    if length < min(_LONG, _LONG_FOR_FEW * positions) or rows * numbers <= _NUMBERS_AT_ONCE:
        return tf.matmul(values, values, transpose_b=True)
    at_once = max(_NUMBERS_AT_ONCE // numbers, -(-rows // _MOST_PARTS))
    parts = (values[start : start + at_once] for start in range(0, rows, at_once))
    return tf.concat([tf.matmul(part, part, transpose_b=True) for part in parts], axis=0)
