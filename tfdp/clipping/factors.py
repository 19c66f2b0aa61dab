"""From per-example gradients to clipped sums: norms, clip factors, weighted sums, totals."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfdp.clipping.terms import Term
from tfdp.privacy.clipping import AutomaticClipping, FlatClipping, PerLayerClipping


class PerExampleGradients(NamedTuple):
    """The gradients of one batch, as an engine finds them.

    Attributes:
      terms: One term per trainable variable, None where the loss does not depend on it; of
        gradients ``forward.loss_scale`` times the true ones.
      losses: ``[B]``; zero at padding.
      outputs: The model's outputs.
      second_pass: From factors ``[B]`` to the sums of the gradients so weighted, by another
        backward pass; None where the engine has none.
    """

    terms: list[Term | None]
    losses: tf.Tensor
    outputs: Any
    second_pass: Callable[[tf.Tensor], list[tf.Tensor]] | None = None


@functools.singledispatch
def clip_factors(
    clipping: FlatClipping,
    clip_norm: float,
    squared_norms: tf.Tensor,
    weights: Sequence[keras.Variable],
) -> list[tf.Tensor]:
    """Returns the factors that the gradients of every weight are scaled by.

    Scaled by them, the gradient of an example has a norm of at most the clip norm over all weights
    jointly. The default, ``min(1, C / norm)``, is flat clipping (Abadi et al. 2016, algorithm 1).
    Registering a function for a subclass of ``FlatClipping`` gives that class factors of its own.

    Args:
      clipping: How examples are clipped.
      clip_norm: The clip norm C.
      squared_norms: ``[weights, B]``, of the gradients before clipping.
      weights: The trainable variables.

    Returns:
      For every weight ``[B]``.
    """
    norms = tf.sqrt(tf.reduce_sum(squared_norms, axis=0))
    return [_at_most(clip_norm, norms)] * len(weights)


@clip_factors.register
def _automatic_factors(
    clipping: AutomaticClipping,
    clip_norm: float,
    squared_norms: tf.Tensor,
    weights: Sequence[keras.Variable],
) -> list[tf.Tensor]:
    """Returns ``C / (norm + gamma)`` (Bu et al. 2022, AUTO-S)."""
    norms = tf.sqrt(tf.reduce_sum(squared_norms, axis=0))
    return [clip_norm / (norms + clipping.gamma)] * len(weights)


@clip_factors.register
def _per_layer_factors(
    clipping: PerLayerClipping,
    clip_norm: float,
    squared_norms: tf.Tensor,
    weights: Sequence[keras.Variable],
) -> list[tf.Tensor]:
    """Returns ``min(1, C_l / norm_l)`` for every layer l apart (McMahan et al. 2018).

    Every trainable weight must lie under the path of a clip norm, and goes with the longest.

    Raises:
      ValueError: A weight lies under no such path, or a path has no weight.
    """
    bounds = dict(clipping.bounds)
    layers = [_layer_of(weight.path, bounds) for weight in weights]
    unused = bounds.keys() - set(layers)
    if unused:  # it would add to the sensitivity, and so to the noise
        raise ValueError(
            f"clip_norm={bounds}: no trainable weight belongs to {sorted(unused)}; leave these "
            "out, or correct the path."
        )
    equal = clip_norm / math.sqrt(len(set(layers)))
    found = {}
    for layer in set(layers):
        own = [i for i, other in enumerate(layers) if other == layer]
        norms = tf.sqrt(tf.reduce_sum(tf.gather(squared_norms, own), axis=0))
        found[layer] = _at_most(bounds.get(layer, equal), norms)
    return [found[layer] for layer in layers]


def _layer_of(path: str, bounds: dict[str, float]) -> str:
    if not bounds:
        return path.rpartition("/")[0]
    above = [layer for layer in bounds if path.startswith(f"{layer}/")]
    if not above:
        raise ValueError(f"clip_norm={bounds}: none of these layers holds the weight {path}.")
    return max(above, key=len)


def _at_most(clip_norm: float, norms: tf.Tensor) -> tf.Tensor:
    """Returns ``min(1, clip_norm / norms)``."""
    clip_norm = tf.cast(clip_norm, norms.dtype)
    return clip_norm / tf.maximum(norms, clip_norm)  # no division by a zero norm


def squared_norms(terms: Sequence[Term | None], count: int) -> tf.Tensor:
    """Returns the squared gradient norm of every weight and example (or user), ``[weights, B]``.

    Args:
      terms: One per weight, or None where the gradient is zero.
      count: B, the number of examples (or users).
    """
    squares = [None if term is None else term.squared_norm() for term in terms]
    dtypes = {square.dtype for square in squares if square is not None}
    dtype = tf.float64 if tf.float64 in dtypes else tf.float32
    zero = tf.zeros([count], dtype)
    return tf.stack([zero if square is None else tf.cast(square, dtype) for square in squares])


def clipped_sums(
    terms: Sequence[Term | None], factors: Sequence[tf.Tensor], weights: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """Returns ``sum_i factors[w][i] * gradient[w][i]`` for every weight, in at least float32."""
    return [
        tf.zeros(weight.shape, own.dtype) if term is None else term.weighted_sum(own)
        for term, own, weight in zip(terms, factors, weights, strict=True)
    ]


def no_sums(weights: Sequence[Any]) -> list[tf.Tensor]:
    """Returns zeros in the shapes of weights, variables or tensors, in at least float32."""
    return [
        tf.zeros(w.shape, tf.float64 if tf.as_dtype(w.dtype) == tf.float64 else tf.float32)
        for w in weights
    ]


def added(totals: Sequence[tf.Tensor], sums: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Adds the sums of a microbatch to those of the ones before, in the dtypes of these."""
    return [a + tf.cast(b, a.dtype) for a, b in zip(totals, sums, strict=True)]
