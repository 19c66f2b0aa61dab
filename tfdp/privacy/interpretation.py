"""What a guarantee and a sampling mean in numbers that people can picture."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tfdp.privacy.settings import Segment


def most_true_positives(false_positive_rate: float, epsilon: float, delta: float) -> float:
    """The best share of members that an attacker can tell, at a share of false alarms.

    Any test of whether a record was used obeys TPR <= e^eps FPR + delta, and the same with the
    hypotheses exchanged (Kairouz, Oh and Viswanath 2015, Theorem 2.1).

    Args:
        false_positive_rate: share of non-members that the attacker takes for members.
        epsilon: of the guarantee; may be infinite.
        delta: of the guarantee.
    """
    if math.isinf(epsilon) or epsilon > 500:
        return 1.0
    direct = math.exp(epsilon) * false_positive_rate + delta
    exchanged = 1 - math.exp(-epsilon) * (1 - delta - false_positive_rate)
    return min(1.0, direct, exchanged)


def meaning(epsilon: float, delta: float, unit: str = "record") -> str:
    """What epsilon and delta promise, for people who meet them for the first time.

    Args:
        epsilon: of the guarantee; may be infinite.
        delta: of the guarantee.
        unit: what it protects one of.
    """
    if math.isinf(epsilon):
        return "epsilon is infinite: there is no promise at all"
    factor = f"{math.exp(epsilon):.4g}" if epsilon < 100 else f"e^{epsilon:.4g}"
    return (
        f"the model changes nobody's odds about one {unit} (whether it is in the data, or which of "
        f"two it is) by more than a factor of e^epsilon = {factor}, up or down; with a probability "
        f"of up to delta = {delta:.3g} there is no promise at all"
    )


def expected_epochs(segments: Iterable[Segment]) -> float:
    """How often a record is used on average."""
    return sum(s.steps * s.settings.sampling_probability for s in segments)


def expected_coverage(segments: Iterable[Segment]) -> float | None:
    """Expected share of records that are used at least once, or None if nobody can tell.

    Random sampling reaches 1 - (1 - q)^T, which is 63.2 % after one "epoch".
    """
    log_missed = 0.0
    for segment in segments:
        settings, steps = segment.settings, segment.steps
        if settings.sampling == "arbitrary":
            return None
        if settings.sampling == "none":
            seen = min(1.0, steps * settings.sampling_probability)
            log_missed += math.log1p(-seen) if seen < 1 else -math.inf
        elif steps:
            rate = settings.sampling_probability
            log_missed += steps * math.log1p(-rate) if rate < 1 else -math.inf
    return abs(math.expm1(log_missed))  # abs: without steps it is 0, not -0
