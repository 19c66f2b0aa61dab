"""Inner products of an example's rows with each other."""

from __future__ import annotations

import math

import tensorflow as tf

# Rows from this length on, such as logits over a vocabulary, are multiplied a few examples at a
# time, so that they stay in a core's cache; XLA else packs those of all examples first, on CPUs in
# memory that it takes anew from the system at every step. More parts would take long to compile.
_LONG = 2048
_NUMBERS_AT_ONCE = 2**19
_MOST_PARTS = 32


def gram_matrices(values: tf.Tensor) -> tf.Tensor:
    """``[B, ..., T, n] -> [B, ..., T, T]``, ``B`` static: ``values @ values^T``."""
    rows, *inner = values.shape
    at_once = max(_NUMBERS_AT_ONCE // math.prod(inner), -(-rows // _MOST_PARTS), 1)
    if inner[-1] < _LONG or rows <= at_once:
        return tf.matmul(values, values, transpose_b=True)
    parts = (values[start : start + at_once] for start in range(0, rows, at_once))
    return tf.concat([tf.matmul(part, part, transpose_b=True) for part in parts], axis=0)
