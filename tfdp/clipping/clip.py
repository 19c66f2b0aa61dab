"""How much of every example's gradient goes into the sum."""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping, Sequence

import keras
import tensorflow as tf

from tfdp import checks
from tfdp.clipping.terms import Term


class Clipping(abc.ABC):
    """From the norms of an example's gradient to the factors that its parts are scaled by."""

    @property
    @abc.abstractmethod
    def sensitivity(self) -> float:
        """Bound on the L2 norm of an example's contribution: noise is in proportion to it."""

    @abc.abstractmethod
    def factors(
        self, squared_norms: tf.Tensor, weights: Sequence[keras.Variable]
    ) -> list[tf.Tensor]:
        """Returns the factors of every weight's gradients.

        Args:
          squared_norms: ``[weights, B]``, of the gradients before clipping.
          weights: The trainable variables.

        Returns:
          For every weight ``[B]``.
        """


class Flat(Clipping):
    """``min(1, C / norm)``, the norm taken over all weights jointly (Abadi et al. 2016).

    Args:
      clip_norm: The bound C.
    """

    def __init__(self, clip_norm: float):
        self._clip_norm = checks.positive("clip_norm", clip_norm)

    @property
    def sensitivity(self) -> float:
        return self._clip_norm

    def factors(self, squared_norms, weights):
        norms = tf.sqrt(tf.reduce_sum(squared_norms, axis=0))
        return [_at_most(self._clip_norm, norms)] * len(weights)


class Automatic(Clipping):
    """``C / (norm + gamma)``: every example has nearly the same norm (Bu et al. 2022).

    Args:
      clip_norm: The bound C, which only scales the learning rate.
      gamma: Keeps examples of vanishing gradient small.
    """

    def __init__(self, clip_norm: float, gamma: float = 0.01):
        self._clip_norm = checks.positive("clip_norm", clip_norm)
        self._gamma = checks.positive("gamma", gamma)

    @property
    def sensitivity(self) -> float:
        return self._clip_norm

    def factors(self, squared_norms, weights):
        norms = tf.sqrt(tf.reduce_sum(squared_norms, axis=0))
        return [self._clip_norm / (norms + self._gamma)] * len(weights)


class PerLayer(Clipping):
    """``min(1, C_l / norm_l)`` for every layer l apart (McMahan et al. 2018).

    Args:
      clip_norms: Bounds by the path of a layer, such as ``{"encoder/dense": 0.1, ...}``; every
        trainable weight must lie under one of them, and goes with the longest; none may be left
        over. Or one number C: every layer with weights of its own gets
        ``C / sqrt(number of layers)``.

    Raises:
      ValueError: A bound is no positive number, or there is none; when weights are clipped, a
        weight lies under no bound, or a bound has no weight.
    """

    def __init__(self, clip_norms: float | Mapping[str, float]):
        if isinstance(clip_norms, Mapping):
            if not clip_norms:
                raise ValueError("clip_norms={}: expected the bound of one layer or more.")
            self._bounds = {
                k: checks.positive(f"clip_norms[{k!r}]", v) for k, v in clip_norms.items()
            }
            self._sensitivity = math.sqrt(sum(bound**2 for bound in self._bounds.values()))
        else:
            self._bounds = {}
            self._sensitivity = checks.positive("clip_norms", clip_norms)

    @property
    def sensitivity(self) -> float:
        return self._sensitivity

    def factors(self, squared_norms, weights):
        layers = [self._layer_of(weight.path) for weight in weights]
        unused = self._bounds.keys() - set(layers)
        if unused:  # it would add to the sensitivity, and so to the noise
            raise ValueError(
                f"clip_norms={self._bounds}: no trainable weight goes with {sorted(unused)}; leave "
                "these out, or correct the path."
            )
        equal = self._sensitivity / math.sqrt(len(set(layers)))
        found = {}
        for layer in set(layers):
            own = [i for i, other in enumerate(layers) if other == layer]
            norms = tf.sqrt(tf.reduce_sum(tf.gather(squared_norms, own), axis=0))
            found[layer] = _at_most(self._bounds.get(layer, equal), norms)
        return [found[layer] for layer in layers]

    def _layer_of(self, path: str) -> str:
        if not self._bounds:
            return path.rpartition("/")[0]
        above = [layer for layer in self._bounds if path.startswith(f"{layer}/")]
        if not above:
            raise ValueError(f"clip_norms={self._bounds}: no layer of it holds the weight {path}.")
        return max(above, key=len)


def as_clipping(clip_norm: float | Clipping) -> Clipping:
    """Returns flat clipping for a number."""
    return clip_norm if isinstance(clip_norm, Clipping) else Flat(clip_norm)


def squared_norms(terms: Sequence[Term | None], batch_size: int) -> tf.Tensor:
    """Returns the squared gradient norm of every weight and example, ``[weights, batch_size]``."""
    squares = [None if term is None else term.squared_norm() for term in terms]
    dtypes = {square.dtype for square in squares if square is not None}
    dtype = tf.float64 if tf.float64 in dtypes else tf.float32
    zero = tf.zeros([batch_size], dtype)
    return tf.stack([zero if square is None else tf.cast(square, dtype) for square in squares])


def clipped_sums(
    terms: Sequence[Term | None], factors: Sequence[tf.Tensor], weights: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """Returns ``sum_i factors[w][i] * gradient[w][i]`` for every weight, in at least float32."""
    return [
        tf.zeros(weight.shape, own.dtype) if term is None else term.weighted_sum(own)
        for term, own, weight in zip(terms, factors, weights, strict=True)
    ]


def _at_most(bound: float, norms: tf.Tensor) -> tf.Tensor:
    """Returns ``min(1, bound / norms)``."""
    bound = tf.cast(bound, norms.dtype)
    return bound / tf.maximum(norms, bound)  # no division by a zero norm
