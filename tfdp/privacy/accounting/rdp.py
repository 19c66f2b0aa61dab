"""Rényi accounting, by tensorflow-privacy's own code."""

from __future__ import annotations

import dataclasses
import functools

import dp_accounting
import numpy as np

from tfdp.privacy.accounting.releases import CannotAnswerError, Mechanism, Releases
from tfdp.privacy.accounting.tensorflow_privacy import AccountantType

#: Between these sampling probabilities, tensorflow-privacy's series takes seconds if there is much
#: noise.
_SLOW = (0.49, 0.51)
_MUCH_NOISE = 50.0


def quick(mechanism: Mechanism) -> Mechanism:
    """Returns the mechanism, or a similar one that costs at least as much and is soon computed.

    A larger sampling probability never lowers a divergence, so the figure stays an upper bound.
    """
    slow = _SLOW[0] < mechanism.probability < _SLOW[1]
    if slow and mechanism.kind == "poisson" and mechanism.multiplier > _MUCH_NOISE:
        return dataclasses.replace(mechanism, sampled=51, population=100)
    return mechanism


def _accountant(mechanism: Mechanism) -> dp_accounting.rdp.RdpAccountant:
    if mechanism.kind == "fixed_size":
        # tensorflow-privacy makes accountants for add-or-remove only; sampling without
        # replacement is analyzed under replacement (Wang, Balle, Kasiviswanathan 2019).
        return dp_accounting.rdp.RdpAccountant(
            neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE
        )
    return AccountantType.RDP.get_accountant()


@functools.lru_cache(maxsize=512)
def divergences(mechanism: Mechanism) -> tuple[np.ndarray, np.ndarray]:
    """Returns orders and Rényi divergences of one release, the divergences rounded up.

    They come out of sums near 1 whose logarithm is then divided by (order - 1). For very small
    divergences the rounding of that sum is all there is, and may even be negative; a few units
    in the last place per order are therefore added, so that the bound never drops below truth.

    Raises:
        CannotAnswerError: The series of tensorflow-privacy fails for these settings.
    """
    try:
        with np.errstate(all="ignore"):
            accountant = _accountant(mechanism).compose(quick(mechanism).event(1))
    except (ArithmeticError, ValueError) as error:
        raise CannotAnswerError(f"the Rényi series fails here ({error})") from error
    orders = accountant.orders
    rounding = 8 * np.finfo(float).eps * orders / (orders - 1)
    divergence = np.maximum(accountant.rdp, 0) + rounding
    return orders, np.where(np.isnan(divergence), np.inf, divergence)


class RdpAccountant:
    """Epsilon through Rényi divergences, at tensorflow-privacy's orders.

    Composition adds the divergences up (Mironov 2017). The conversion to epsilon is Proposition
    12 of Canonne, Kamath and Steinke 2020, not the older and looser one of Mironov.
    """

    name = "rdp"
    title = "RDP (tensorflow-privacy)"

    def epsilon(self, counts: Releases, delta: float) -> float:
        """See `Accountant.epsilon`. Cheap once a mechanism is known: well under 1 ms."""
        per_release = [(count, *divergences(mechanism)) for mechanism, count in counts.items()]
        orders = per_release[0][1]
        total = sum(count * divergence for count, _, divergence in per_release)
        epsilon, _ = dp_accounting.rdp.compute_epsilon(orders, total, delta)
        if not np.isfinite(epsilon):
            raise CannotAnswerError("no Rényi order gives a finite epsilon")
        return float(epsilon)
