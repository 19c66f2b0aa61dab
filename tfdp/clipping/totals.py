"""Clipped sums of microbatches, added up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def no_sums(weights: Sequence[Any]) -> list[tf.Tensor]:
    """Returns zeros in the shapes of weights, variables or tensors, in at least float32."""
    return [
        tf.zeros(w.shape, tf.float64 if tf.as_dtype(w.dtype) == tf.float64 else tf.float32)
        for w in weights
    ]


def added(totals: Sequence[tf.Tensor], sums: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Adds the sums of a microbatch to those of the ones before, in the dtypes of these."""
    return [a + tf.cast(b, a.dtype) for a, b in zip(totals, sums, strict=True)]
