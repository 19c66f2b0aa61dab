"""Exact accounting of the Gaussian mechanism without sampling, in closed form."""

from __future__ import annotations

import math

import numpy as np
from scipy import optimize, special

from tfdp.privacy.accounting.releases import CannotAnswerError, Releases


def log_delta(epsilon: float, mu: float) -> float:
    """Returns the logarithm of the exact delta of one Gaussian release at `epsilon`.

    Theorem 8 of Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy"
    (ICML 2018): delta = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu).

    Args:
        epsilon: 0 or more.
        mu: Sensitivity over standard deviation, above 0.
    """
    first = special.log_ndtr(mu / 2 - epsilon / mu)
    second = epsilon + special.log_ndtr(-mu / 2 - epsilon / mu)
    # Rounding may make the two equal; the difference is then below what floats can tell.
    gap = min(second - first, -np.finfo(float).eps)
    return float(first + math.log(-math.expm1(gap)))


def epsilon_of_mu(mu: float, delta: float) -> float:
    """Returns epsilon of one Gaussian release of sensitivity over deviation `mu`, rounded up."""
    if log_delta(0.0, mu) <= math.log(delta):
        return 0.0
    # Zero-concentrated privacy bounds the answer from above (Bun and Steinke 2016, Prop. 1.3).
    upper = mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    tolerance = 1e-13 * max(1.0, upper)
    root = optimize.brentq(
        lambda epsilon: log_delta(epsilon, mu) - math.log(delta), 0.0, upper, xtol=tolerance
    )
    return min(upper, root + 2 * tolerance)


class GaussianAccountant:
    """The exact answer for steps that use every record.

    Gaussian releases compose into one: their squared ratios of sensitivity to deviation add up
    (Dong, Roth and Su 2022, Corollary 3.3), so T releases at s are one release at s / sqrt(T).
    """

    name = "gaussian"
    title = "exact Gaussian (closed form)"

    def epsilon(self, counts: Releases, delta: float) -> float:
        """See `Accountant.epsilon`."""
        if any(mechanism.kind != "gaussian" for mechanism in counts):
            raise CannotAnswerError("the closed form holds without subsampling only")
        mu = math.sqrt(sum(count / m.multiplier**2 for m, count in counts.items()))
        return epsilon_of_mu(mu, delta)
