"""From per-example gradients to the clipped sum."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tfdp.clipping.terms import Term


def squared_norms(terms: Sequence[Term | None], batch_size: int) -> tf.Tensor:
    """Returns the squared gradient norm of every weight and example, ``[weights, batch_size]``."""
    squares = [None if term is None else term.squared_norm() for term in terms]
    dtypes = {square.dtype for square in squares if square is not None}
    dtype = tf.float64 if tf.float64 in dtypes else tf.float32
    zero = tf.zeros([batch_size], dtype)
    return tf.stack([zero if square is None else tf.cast(square, dtype) for square in squares])


def clip_factors(norms: tf.Tensor, clip_norm: float, mask: tf.Tensor) -> tf.Tensor:
    """Returns ``min(1, clip_norm / norm)``; zero at padding and where the norm is not finite.

    Args:
      norms: ``[B]``.
      clip_norm: The bound C on an example's contribution.
      mask: ``[B]`` bool, False at padding.
    """
    clip_norm = tf.cast(clip_norm, norms.dtype)
    factors = clip_norm / tf.maximum(norms, clip_norm)  # no division by a zero norm
    return tf.where(mask & tf.math.is_finite(norms), factors, 0)


def clipped_sums(
    terms: Sequence[Term | None], factors: tf.Tensor, weights: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """Returns ``sum_i factors[i] * gradient[i]`` for every weight, in at least float32."""
    return [
        tf.zeros(weight.shape, factors.dtype) if term is None else term.weighted_sum(factors)
        for term, weight in zip(terms, weights, strict=True)
    ]
