"""Finding the noise, the steps or the batch size that a privacy budget allows.

The search is `scipy.optimize.brentq` on logarithms, between which these epsilons are nearly
straight lines. Every answer is checked with the accounting that the report uses: epsilon ends at
or below the target, never above.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Callable, Sequence

from scipy import optimize

from tfdp import checks
from tfdp.privacy.accounting import CannotAnswerError, checked_delta, epsilon, releases
from tfdp.privacy.accounting.choose import LEAST_MULTIPLIER
from tfdp.privacy.accounting.pld import PldAccountant
from tfdp.privacy.settings import Segment, StepSettings

_NOISE_RANGE = (1e-3, 1e9)
_MOST_STEPS = 10**12
#: Loose, and twenty times faster than the accounting that counts: it finds the neighborhood.
_SKETCH = PldAccountant(most_points=4_000)
#: How far below its target, relatively, epsilon may end: by the sketch, and by what counts in
#: the end, on a grid of privacy losses or in closed form.
_SKETCHED, _ON_A_GRID, _CLOSED_FORM = 3e-3, 1e-4, 1e-7
#: Epsilons of neighboring numbers of steps may be closer than this, relatively.
_INDISTINCT = 1e-6
#: Limits of the search, in logarithms: the largest gap that counts, the first width of a bracket.
_FAR, _LEAST_WIDTH = 9.0, 1e-3
#: Tries after which a cost may be thought to jitter, and the most that the tolerance grows then.
_FEW_TRIES, _JITTER = 6, 16


class UnreachableError(ValueError):
    """No number in the range keeps epsilon at or below its target."""


def noise_for_epsilon(
    target: float,
    delta: float,
    settings: StepSettings,
    steps: int,
    *,
    accountant: str = "auto",
    spent: Sequence[Segment] = (),
) -> float:
    """Returns the least noise multiplier with which `steps` steps keep to the target.

    Args:
        target: Epsilon, above 0.
        delta: Strictly between 0 and 1.
        settings: The step; its own noise multiplier is ignored.
        steps: How many there will be.
        accountant: As for `tfdp.privacy.epsilon`.
        spent: What has been spent already; the target is for everything together.

    Returns:
        A noise multiplier whose epsilon lies within 0.1% below the target, usually within
        0.01% (or further below where no noise multiplier of at least 0.001 comes nearer).

    Raises:
        ValueError: An argument is out of range, or no amount of noise is enough.
    """
    target, delta = checks.positive("epsilon", target), checked_delta(delta)
    checks.positive_int("steps", steps)
    _reject_unused(settings, steps, delta)

    def segments(noise: float) -> list[Segment]:
        return [*spent, Segment(dataclasses.replace(settings, noise_multiplier=noise), steps)]

    guess = max(0.5, 6 * settings.sampling_probability * steps**0.5 / target)
    guess = _neighborhood(
        segments, target, delta, settings.sensitivity * guess, _NOISE_RANGE, rises=False
    )
    return meet_target(
        lambda noise: epsilon(segments(noise), delta, accountant).epsilon,
        target,
        guess,
        _NOISE_RANGE,
        _CLOSED_FORM if _has_closed_form(segments(guess)) else _ON_A_GRID,
        rises=False,
    )


def steps_for_epsilon(
    target: float,
    delta: float,
    settings: StepSettings,
    *,
    accountant: str = "auto",
    spent: Sequence[Segment] = (),
    at_most: int = _MOST_STEPS,
) -> int:
    """Returns the largest number of steps that keeps to the target, 0 if there is none.

    Exact up to half a million; beyond it, epsilon is within a millionth of the target.

    Args:
        target: Epsilon, above 0.
        delta: Strictly between 0 and 1.
        settings: The step, with its noise multiplier.
        accountant: As for `tfdp.privacy.epsilon`.
        spent: What has been spent already; the target is for everything together.
        at_most: The largest number to consider.

    Raises:
        ValueError: An argument is out of range.
    """
    target, delta = checks.positive("epsilon", target), checked_delta(delta)
    checks.positive_int("at_most", at_most)

    def segments(steps: float) -> list[Segment]:
        return [*spent, Segment(settings, math.floor(steps))]

    if settings.noise_multiplier == 0 or epsilon(spent, delta, accountant).epsilon > target:
        return 0
    try:
        return _largest(segments, target, delta, accountant, min(1000, at_most), (1, at_most))
    except UnreachableError:
        return 0


def batch_size_for_epsilon(
    target: float,
    delta: float,
    settings: StepSettings,
    steps: int,
    *,
    accountant: str = "auto",
    spent: Sequence[Segment] = (),
) -> int:
    """Returns the largest expected batch size with which `steps` steps keep to the target.

    Args:
        target: Epsilon, above 0.
        delta: Strictly between 0 and 1.
        settings: The step, with its noise multiplier; its own batch size is ignored.
        steps: How many there will be.
        accountant: As for `tfdp.privacy.epsilon`.
        spent: What has been spent already; the target is for everything together.

    Returns:
        A batch size between 1 and the number of examples; larger ones exceed the target.

    Raises:
        ValueError: An argument is out of range, the sampling is the full batch, or even a batch
            size of 1 exceeds the target.
    """
    target, delta = checks.positive("epsilon", target), checked_delta(delta)
    checks.positive_int("steps", steps)
    most = settings.num_examples
    if settings.sampling == "full_batch":
        raise ValueError(
            "a full batch has one size, num_examples: pass settings with another sampling, and "
            f"with a batch_size below {most} (it is ignored)."
        )

    def segments(batch_size: float) -> list[Segment]:
        step = dataclasses.replace(settings, batch_size=math.floor(batch_size))
        return [*spent, Segment(step, steps)]

    multiplier = max(settings.noise_multiplier / settings.sensitivity, LEAST_MULTIPLIER)
    guess = max(1.0, most * min(1.0, multiplier * target / (6 * steps**0.5)))
    return _largest(segments, target, delta, accountant, guess, (1, most))


def _reject_unused(settings: StepSettings, steps: int, delta: float) -> None:
    """Rejects a plan without noise, which a large delta would allow in the letter."""
    if settings.sampling not in ("poisson", "fixed_size"):
        return
    used = -math.expm1(steps * math.log1p(-settings.sampling_probability))
    if used <= delta:
        raise ValueError(
            f"delta {delta:g} is not below {used:.3g}, the probability that a given example is "
            "used at all, so no noise would be needed: use a smaller delta."
        )


def _has_closed_form(segments: list[Segment]) -> bool:
    return all(mechanism.kind == "gaussian" for mechanism in releases(segments))


def _neighborhood(
    segments: Callable[[float], list[Segment]],
    target: float,
    delta: float,
    guess: float,
    bounds: tuple[float, float],
    *,
    rises: bool,
) -> float:
    """Returns about where epsilon meets the target: by the sketch, or the guess without one."""
    if _has_closed_form(segments(guess)):
        return guess
    try:
        return meet_target(
            lambda x: _SKETCH.epsilon(releases(segments(x)), delta),
            target,
            guess,
            bounds,
            _SKETCHED,
            rises=rises,
        )
    except (CannotAnswerError, UnreachableError):
        return guess


def _largest(
    segments: Callable[[float], list[Segment]],
    target: float,
    delta: float,
    accountant: str,
    guess: float,
    bounds: tuple[int, int],
) -> int:
    """Returns the largest whole number at which the epsilon of `segments` keeps to the target."""
    guess = _neighborhood(segments, target, delta, guess, bounds, rises=True)
    return largest_integer(
        lambda x: epsilon(segments(x), delta, accountant).epsilon, target, guess, bounds
    )


def meet_target(
    cost: Callable[[float], float],
    target: float,
    guess: float,
    bounds: tuple[float, float],
    tolerance: float,
    *,
    rises: bool,
) -> float:
    """Finds x with target * (1 - tolerance) <= cost(x) <= target.

    Should the cost jump over the target, or never come near it within the bounds, the result is
    the x nearest to it, of those tried, that stays at or below the target. A cost that jitters
    cannot be met more closely than it jitters: every try too many doubles the tolerance, up to
    sixteen times.

    Args:
        cost: Non-negative and monotone, up to rounding.
        target: The cost to meet, above 0.
        guess: Where to start.
        bounds: Smallest and largest x, both above 0.
        tolerance: How far below its target, relatively, the cost may end.
        rises: Whether the cost rises with x, or falls.

    Raises:
        UnreachableError: The cost exceeds the target wherever it was tried.
    """
    tried: dict[float, float] = {}

    def gap(z: float) -> float:
        """How far log(cost) is above its aim at x = e^z; 0, which ends the search, if near it."""
        if z not in tried:
            tried[z] = cost(math.exp(z))
        patience = min(2 ** max(0, len(tried) - _FEW_TRIES), _JITTER)
        if target * (1 - tolerance * patience) <= tried[z] <= target:
            return 0.0
        ratio = min(max(tried[z] / target, math.exp(-_FAR)), math.exp(_FAR))
        return math.log(ratio) + tolerance / 2

    lowest, highest = map(math.log, bounds)
    inner = outer = min(max(math.log(guess), lowest), highest)
    upward = (gap(inner) < 0) == rises
    width = max(1.2 * abs(gap(inner)), _LEAST_WIDTH)
    while gap(inner) * gap(outer) > 0 and outer != (highest if upward else lowest):
        inner, outer = outer, min(outer + width, highest) if upward else max(outer - width, lowest)
        width *= 2
    if gap(inner) * gap(outer) < 0:
        optimize.brentq(gap, inner, outer, xtol=tolerance / 1000, maxiter=200)
    kept = [(value, z if rises else -z, z) for z, value in tried.items() if value <= target]
    if not kept:
        raise UnreachableError(
            f"epsilon {target:g} cannot be reached: every value tried between {bounds[0]:g} and "
            f"{bounds[1]:g} exceeds it."
        )
    return math.exp(max(kept)[2])


def largest_integer(
    cost: Callable[[int], float], target: float, guess: float, bounds: tuple[int, int]
) -> int:
    """Returns the largest integer of a range whose cost, which rises, keeps to the target.

    Or one whose cost is within a millionth of it, which is nearer than numbers beyond some
    millions can be told apart.

    Args:
        cost: As for `meet_target`.
        target: As for `meet_target`.
        guess: Where to start.
        bounds: Smallest and largest integer.

    Raises:
        UnreachableError: The cost of the smallest one is already above the target.
    """
    tried: dict[int, float] = {}

    def of(number: int) -> float:
        if number not in tried:
            tried[number] = cost(number)
        return tried[number]

    def floor(x: float) -> int:
        return math.floor(x * (1 + 1e-12))  # e^log(n) may be just below n

    found = floor(
        meet_target(lambda x: of(floor(x)), target, guess, bounds, _INDISTINCT / 100, rises=True)
    )
    if of(found) >= target * (1 - _INDISTINCT):
        return found
    found = max(number for number, value in tried.items() if value <= target)
    above = min((number for number in tried if number > found), default=bounds[1] + 1)
    return found - 1 + bisect.bisect_right(range(found, above), target, key=of)
