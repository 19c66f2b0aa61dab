"""Group privacy: what a guarantee for one example is worth to a person with several."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable

from tfdp import checks
from tfdp.privacy.accounting import Mechanism, Releases, releases
from tfdp.privacy.accounting.choose import TINY_DELTA, account, checked_delta
from tfdp.privacy.settings import Segment

_FINE = 10**15
_MOST_ROUNDS = 60


def epsilon_of_group(
    segments: Iterable[Segment], delta: float, size: int, accountant: str = "rdp"
) -> float:
    """Returns an upper bound on epsilon for `size` examples that come and go together.

    The smaller of two bounds:

    - As one large example. Some of the group is drawn with probability 1 - (1 - q)^k, and moves the
      sum by up to k clip norms then; hockey-stick divergences are jointly convex, so no mixture of
      smaller moves costs more. Exact at q = 1;
    - In k steps from one example to the next: (epsilon, delta') for one example gives k epsilon at
      delta' (e^(k epsilon) - 1) / (e^epsilon - 1) (Vadhan 2017, "The Complexity of Differential
      Privacy", Lemma 2.2).

    Args:
        segments: What was run on examples of which the group has several.
        delta: Strictly between 0 and 1.
        size: Number of examples, k.
        accountant: As for `tfdp.privacy.epsilon`; "rdp" takes milliseconds.

    Returns:
        Epsilon, infinite if there is no guarantee.
    """
    size = checks.positive_int("size", size)
    counts = releases(segments)
    delta = checked_delta(delta)
    if size == 1 or not counts:
        return account(counts, delta, accountant).epsilon
    one = _as_one(counts, size)
    if all(mechanism.kind == "gaussian" for mechanism in one):
        accountant = "gaussian"  # exact, and as quick
    together = account(one, delta, accountant).epsilon
    return min(together, _in_steps(counts, delta, size, accountant))


def _as_one(counts: Releases, size: int) -> Releases:
    """Returns the releases if the group were one example with `size` clip norms."""
    bound: Counter[Mechanism] = Counter()
    for mechanism, count in counts.items():
        multiplier = mechanism.multiplier / size
        q = mechanism.probability
        sampled = math.ceil(_FINE * (-math.expm1(size * math.log1p(-q)) if q < 1 else 1.0))
        if mechanism.kind == "poisson" and sampled < _FINE:
            larger = dataclasses.replace(
                mechanism, multiplier=multiplier, sampled=sampled, population=_FINE
            )
        else:
            larger = Mechanism("gaussian", multiplier)
        bound[larger] += count
    return dict(bound)


def _in_steps(counts: Releases, delta: float, size: int, accountant: str) -> float:
    """Returns k times the epsilon of one example, at the largest delta' that adds up to delta."""
    own = delta / size
    for _ in range(_MOST_ROUNDS):
        if own < TINY_DELTA:
            break
        epsilon = account(counts, own, accountant).epsilon
        allowed = _delta_of_one(epsilon, delta, size)
        if own <= allowed:
            return size * epsilon
        own = allowed * 0.999  # epsilon grows as delta' falls: a little less, to arrive
    return math.inf


def _delta_of_one(epsilon: float, delta: float, size: int) -> float:
    """delta (e^epsilon - 1) / (e^(k epsilon) - 1), without overflow."""
    if epsilon == 0:
        return delta / size
    shrink = math.expm1(-epsilon) / math.expm1(-size * epsilon) * math.exp(-(size - 1) * epsilon)
    return delta * shrink if math.isfinite(epsilon) else 0.0
