"""Noise on a grid: which one, and why it costs next to nothing.

A clipped sum in floating point is rounded to multiples of a step g, and integers from the discrete
Gaussian are added. Every released number is then a multiple of g, whatever the data: attacks on
the gaps that floating-point noise leaves (Mironov 2012, Haney et al. 2022) find none.

Rounding moves each of d coordinates by at most g / 2, so an example moves the rounded sum by at
most C + g sqrt(d). The step is the largest power of two with g sqrt(d) <= C / 2^14: the sensitivity
that the accountants charge is C (1 + 2^-14), for every model.

The discrete Gaussian of deviation sigma (in steps) is accounted as the continuous one. Let X be
normal of variance sigma^2 - 9, and Y an integer drawn with probabilities proportional to
exp(-(k - X)^2 / 18). By Poisson summation the normalizer of Y varies with X by a factor within
1 +- 2.1 exp(-18 pi^2) only, so Y is the discrete Gaussian but for a factor within 1 +- 10^-76 a
coordinate, at every integer shift: a release is post-processing of the continuous one of variance
sigma^2 - 9, to which epsilons of 10^-64 are added for a million million weights. The deviation is
rounded up by at least one step, which more than makes up for the 9. This holds for every accountant
and every sampling.

Not considered, here as without the grid: clipped gradients are added up in float32, whose rounding
also depends on the other examples.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

from tfdp.privacy.discrete_gaussian import MOST_DEVIATION
from tfdp.privacy.settings import GRID_OVERHEAD

_LEAST_DEVIATION = 8  # with less noise than this many steps the argument above does not hold


@dataclasses.dataclass(frozen=True)
class Grid:
    """The grid of a model's noise.

    Attributes:
        step: g, a power of two.
        deviation: Of the noise, in steps.
    """

    step: float
    deviation: int

    @classmethod
    def of(cls, clip_norm: float, noise_multiplier: float, weights: int) -> Grid:
        """Returns the coarsest grid whose rounding the plan's sensitivity covers.

        Args:
            clip_norm: C.
            noise_multiplier: s.
            weights: Number of trainable weights d.

        Raises:
            ValueError: The noise is too small, or too large, for integers.
        """
        step = 2.0 ** math.floor(math.log2(clip_norm * GRID_OVERHEAD / math.sqrt(weights)))
        exact = Fraction(noise_multiplier) * Fraction(clip_norm) / Fraction(step)
        if not _LEAST_DEVIATION <= exact < MOST_DEVIATION - 1:
            raise ValueError(
                f"secure=True: noise_multiplier {noise_multiplier:g} on {weights} weights makes "
                f"{float(exact):.3g} steps of the grid, and {_LEAST_DEVIATION} to 2^52 are "
                "possible: change noise_multiplier, or plan with secure=False."
            )
        return cls(step, math.ceil(exact) + 1)
