"""From the scores of a membership attack to a lower bound on epsilon."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats


@dataclasses.dataclass(frozen=True)
class Audit:
    """What an attack proves.

    Attributes:
        epsilon: No mechanism with a smaller epsilon behaves like this; 0 if nothing is proved.
        confidence: Probability that the bound is right, over the attack's runs.
        delta: The delta that goes with epsilon.
        true_positive_rate: Lower end of its confidence interval.
        false_positive_rate: Upper end of its confidence interval.
        trials: How many runs each of the two rates was measured on.
    """

    epsilon: float
    confidence: float
    delta: float
    true_positive_rate: float
    false_positive_rate: float
    trials: tuple[int, int]


class _Test(NamedTuple):
    """Says "with" for scores beyond a threshold, or "without": both must obey epsilon."""

    threshold: np.ndarray  # one, or several to choose from
    sign: int  # 1: high scores are positive; -1: low ones
    swapped: bool  # positive means "without the example"


def epsilon_lower_bound(
    scores_with: ArrayLike, scores_without: ArrayLike, delta: float, confidence: float = 0.95
) -> Audit:
    """Bounds epsilon from below by an attack's scores.

    Any test of whether an example took part has ``TPR <= exp(epsilon) * FPR + delta`` (Kairouz,
    Oh and Viswanath 2015), so rates that were measured bound epsilon from below (Jagielski, Ullman
    and Oprea 2020, section 4). The test is chosen on one half of the runs and measured on the
    other, by Clopper-Pearson intervals that hold jointly: choosing it on the runs that measure it
    would find leaks where there are none.

    Args:
        scores_with: One score for every independent run with the example. The attack may point to
            high scores or to low ones.
        scores_without: The same for runs without it.
        delta: Of the guarantee that is audited.
        confidence: Between 0 and 1.

    Raises:
        ValueError: Fewer than four scores, a score that is not a number, or a number out of range.
    """
    if not 0 <= delta < 1:
        raise ValueError(f"delta={delta}: expected a number from 0 to below 1.")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence={confidence}: expected a number between 0 and 1.")
    positive = _halves(_scores("scores_with", scores_with))
    negative = _halves(_scores("scores_without", scores_without))
    chosen = _best_test(positive[0], negative[0], delta, confidence)
    hits, alarms = _positives(chosen, positive[1], negative[1])
    trials = (len(positive[1]), len(negative[1]))
    if chosen.swapped:
        trials = trials[::-1]
    true_rate, false_rate = _rates(hits, alarms, trials, confidence)
    proved = max(0.0, _epsilon(true_rate, false_rate, delta).item())
    return Audit(proved, confidence, delta, true_rate.item(), false_rate.item(), trials)


def _scores(name: str, values: ArrayLike) -> np.ndarray:
    scores = np.asarray(values, dtype=float).reshape(-1)
    if len(scores) < 4:
        raise ValueError(f"{name} holds {len(scores)} scores: expected at least 4 runs.")
    if np.isnan(scores).any():
        raise ValueError(f"{name} holds scores that are not numbers.")
    return scores


def _halves(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Splits at random, always the same way: the order of the runs may carry information."""
    order = np.random.default_rng(0).permutation(len(scores))
    return scores[order[::2]], scores[order[1::2]]


def _best_test(
    positive: np.ndarray, negative: np.ndarray, delta: float, confidence: float
) -> _Test:
    """Returns the threshold and the side of it that prove most."""
    scores = np.concatenate([positive, negative])
    thresholds = np.unique(np.quantile(scores, np.linspace(0, 1, 101), method="nearest"))
    found = []
    for sign in (1, -1):
        for swapped in (False, True):
            test = _Test(thresholds, sign, swapped)
            trials = (len(positive), len(negative))
            rates = _rates(
                *_positives(test, positive, negative),
                trials[::-1] if swapped else trials,
                confidence,
            )
            proved = _epsilon(*rates, delta)
            best = int(np.argmax(proved))
            found.append((float(proved[best]), test._replace(threshold=thresholds[best])))
    return max(found, key=lambda entry: entry[0])[1]


def _positives(test: _Test, *samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Counts the scores of each sample that are positive; the test's own positives first."""
    counts = [
        np.sum(test.sign * scores[:, None] > test.sign * np.atleast_1d(test.threshold), axis=0)
        for scores in samples
    ]
    first, second = counts[::-1] if test.swapped else counts
    return first, second


def _rates(
    hits: np.ndarray, alarms: np.ndarray, trials: tuple[int, int], confidence: float
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the least true-positive and the largest false-positive rate for the counts."""
    error = (1 - confidence) / 2  # each of the two intervals may fail
    positives, negatives = trials
    least = stats.beta.ppf(error, np.maximum(hits, 1), positives - hits + 1)
    largest = stats.beta.ppf(1 - error, alarms + 1, np.maximum(negatives - alarms, 1))
    return np.where(hits > 0, least, 0.0), np.where(alarms < negatives, largest, 1.0)


def _epsilon(true_rate: np.ndarray, false_rate: np.ndarray, delta: float) -> np.ndarray:
    return np.log(np.maximum(true_rate - delta, 1e-300) / false_rate)
