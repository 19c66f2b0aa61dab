"""What a guarantee and a sampling mean, in numbers that are easy to picture."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tfdp import checks
from tfdp.privacy.settings import Segment


def most_true_positives(false_positive_rate: float, epsilon: float, delta: float) -> float:
    """Returns the best true-positive rate of an attacker at a false-positive rate.

    Any test of whether an example was used obeys TPR <= e^eps FPR + delta, and the same with the
    hypotheses exchanged (Kairouz, Oh and Viswanath 2015, Theorem 2.1).

    Args:
        false_positive_rate: Fraction of the examples that were not used and are taken for used.
        epsilon: Of the guarantee; may be infinite.
        delta: Of the guarantee.
    """
    if math.isinf(epsilon) or epsilon > 500:
        return 1.0
    direct = math.exp(epsilon) * false_positive_rate + delta
    exchanged = 1 - math.exp(-epsilon) * (1 - delta - false_positive_rate)
    return min(1.0, direct, exchanged)


def meaning(epsilon: float, delta: float, unit: str = "example") -> str:
    """Returns what epsilon and delta promise, for readers who are new to them.

    Args:
        epsilon: Of the guarantee; may be infinite.
        delta: Of the guarantee.
        unit: What it protects one of.
    """
    if math.isinf(epsilon):
        return "epsilon is infinite: there is no promise at all"
    factor = f"{math.exp(epsilon):.4g}" if epsilon < 100 else f"e^{epsilon:.4g}"
    return (
        f"seeing the model changes anyone's odds about one {unit} (whether it is in the data, or "
        f"which of two it is) by at most a factor of e^epsilon = {factor}, up or down; with a "
        f"probability of up to delta = {delta:.3g} there is no promise"
    )


def steps_for_epochs(epochs: float, num_examples: int, batch_size: int) -> int:
    """Returns the steps that use each example `epochs` times on average: ceil(epochs * N / B)."""
    epochs = checks.positive("epochs", epochs)
    examples = epochs * checks.positive_int("num_examples", num_examples)
    return max(1, math.ceil(examples / checks.positive_int("batch_size", batch_size) - 1e-9))


def expected_epochs(segments: Iterable[Segment]) -> float:
    """Returns how often an example is used on average."""
    return sum(s.steps * s.settings.sampling_probability for s in segments)


def expected_coverage(segments: Iterable[Segment]) -> float | None:
    """Returns the expected fraction of examples that are used at least once, or None if unknown.

    Random sampling reaches 1 - (1 - q)^T, which is 63.2% after one "epoch".
    """
    log_missed = 0.0
    for segment in segments:
        settings, steps = segment.settings, segment.steps
        q = settings.sampling_probability
        if settings.sampling == "arbitrary":
            return None
        if settings.sampling == "none":
            seen = min(1.0, steps * q)
            log_missed += math.log1p(-seen) if seen < 1 else -math.inf
        elif steps:
            log_missed += steps * math.log1p(-q) if q < 1 else -math.inf
    return abs(math.expm1(log_missed))  # abs: without steps it is 0, not -0
