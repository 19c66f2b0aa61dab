"""Finding the noise, the steps or the batch that a privacy budget allows.

Every answer is checked with the very accounting that the report uses: epsilon ends at or below
the target, never above.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from tfdp import checks
from tfdp.privacy._delta import checked_delta
from tfdp.privacy._search import UnreachableError, largest_integer, meet_target
from tfdp.privacy.accounting import CannotAnswerError, epsilon, releases
from tfdp.privacy.accounting.choose import LEAST_MULTIPLIER
from tfdp.privacy.accounting.pld import PldAccountant
from tfdp.privacy.settings import Segment, StepSettings

_NOISE_RANGE = (1e-3, 1e9)
_MOST_UPDATES = 10**12
#: Loose and twenty times faster than the accounting proper: it finds the neighbourhood.
_SKETCH = PldAccountant(most_points=4_000, removals_only=True)
#: Twice as fast as the accounting proper, and nearly always equal to it.
_REMOVALS = PldAccountant(removals_only=True)
#: How far below its target, relatively, epsilon may end: by the sketch, for a removed record, and
#: by what counts in the end. Where delta is tiny, the transforms' rounding jitters by a thousandth.
_SKETCHED, _REMOVED, _ON_A_GRID, _CLOSED_FORM = 3e-3, 1e-4, 1e-3, 1e-7


def noise_for_epsilon(
    target: float,
    delta: float,
    settings: StepSettings,
    steps: int,
    *,
    accountant: str = "auto",
    spent: Sequence[Segment] = (),
) -> float:
    """The least noise multiplier with which `steps` steps keep to the target.

    Args:
        target: epsilon, above 0.
        delta: strictly between 0 and 1.
        settings: the update; its own noise multiplier is ignored.
        steps: how many there will be.
        accountant: as for `tfdp.privacy.epsilon`.
        spent: what the model has already cost; the target is for everything together.

    Returns:
        A noise multiplier whose epsilon lies within 0.1 % below the target, as a rule within
        0.01 % (or further below where no noise multiplier of at least 0.001 comes nearer).

    Raises:
        ValueError: an argument is out of range, or no amount of noise is enough.
    """
    target, delta = _check(target, delta)
    checks.positive_int("steps", steps)
    _refuse_unused(settings, steps, delta)

    def segments(noise: float) -> list[Segment]:
        return [*spent, Segment(dataclasses.replace(settings, noise_multiplier=noise), steps)]

    guess = max(0.5, 6 * settings.sampling_probability * steps**0.5 / target)
    return _meet(
        segments,
        target,
        delta,
        accountant,
        guess=settings.sensitivity * guess,
        bounds=_NOISE_RANGE,
        slope=-1.3,
    )


def steps_for_epsilon(
    target: float,
    delta: float,
    settings: StepSettings,
    *,
    accountant: str = "auto",
    spent: Sequence[Segment] = (),
    at_most: int = _MOST_UPDATES,
) -> int:
    """The largest number of steps that keeps to the target, 0 if there is none.

    Exact up to half a million; beyond it, epsilon is within a millionth of the target.

    Args: as for `noise_for_epsilon`; the noise multiplier of `settings` counts here.
        at_most: do not look beyond this many.
    """
    target, delta = _check(target, delta)
    checks.positive_int("at_most", at_most)

    before = epsilon(spent, delta, accountant).epsilon
    if before > target or settings.noise_multiplier == 0:
        return 0
    try:
        return _largest(
            lambda steps: [*spent, Segment(settings, max(1, round(steps)))],
            target,
            delta,
            accountant,
            guess=min(1000, at_most),
            bounds=(1, at_most),
            slope=0.5,
        )
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
    """The largest expected batch with which `steps` steps keep to the target.

    Args: as for `noise_for_epsilon`; the batch size of `settings` is ignored.

    Returns:
        A batch size between 1 and the number of records; larger ones exceed the target.

    Raises:
        ValueError: an argument is out of range, the sampling is the full batch, or even a batch of
            1 exceeds the target.
    """
    target, delta = _check(target, delta)
    checks.positive_int("steps", steps)
    if settings.sampling == "full_batch":
        raise ValueError(
            "a full batch has one size, num_examples: give settings of another sampling, with a "
            f"batch_size below {settings.num_examples} (it is ignored)."
        )

    population = settings.num_examples

    def segments(batch: float) -> list[Segment]:
        # Only the rate B/N counts, so a thousandfold population allows batches in between.
        whole = 1000 * population
        part = min(max(1, round(1000 * batch)), whole)
        finer = dataclasses.replace(settings, num_examples=whole, batch_size=part)
        return [*spent, Segment(finer, steps)]

    multiplier = max(settings.noise_multiplier / settings.sensitivity, LEAST_MULTIPLIER)
    guess = population * min(1.0, multiplier * target / (6 * steps**0.5))
    try:
        return _largest(
            segments,
            target,
            delta,
            accountant,
            guess=max(1.0, guess),
            bounds=(1, population),
            slope=1.0,
        )
    except UnreachableError as error:
        raise _cannot_be_reached(target, delta, error) from None


def _check(target: float, delta: float) -> tuple[float, float]:
    return (
        checks.positive("epsilon", target),
        checked_delta(delta),
    )


def _refuse_unused(settings: StepSettings, steps: int, delta: float) -> None:
    """Without noise there is no privacy worth the name, even where the definition is content."""
    if settings.sampling not in ("poisson", "fixed_size"):
        return
    used = -math.expm1(steps * math.log1p(-settings.sampling_probability))
    if used <= delta:
        raise ValueError(
            f"delta {delta:g} is not below {used:.3g}, the chance that a given record is used at "
            "all, so that no noise would be needed: give a smaller delta."
        )


def _meet(
    segments: Callable[[float], list[Segment]],
    target: float,
    delta: float,
    accountant: str,
    *,
    guess: float,
    bounds: tuple[float, float],
    slope: float,
) -> float:
    """Finds x at which the cost of `segments(x)` meets the target from below.

    In three stages, since the accounting that counts takes up to a second a time: on a sketch of
    the loss distribution; on that of a removed record; and, should an added record cost more or
    the Renyi bound be the tighter one after all, on the accounting that counts. Where there is a
    closed form the last stage is enough.
    """
    exact = _has_closed_form(segments(bounds[0]))
    tolerance = _CLOSED_FORM if exact else _ON_A_GRID

    def cost(x: float) -> float:
        return epsilon(segments(x), delta, accountant).epsilon

    try:
        if accountant in ("auto", "pld") and not exact:
            guess, slope = _neighbourhood(segments, target, delta, guess, bounds, slope)
            removals = _by(_REMOVALS, segments, delta)
            guess = meet_target(removals, target, guess, bounds, slope, _REMOVED)
    except (CannotAnswerError, UnreachableError):
        pass
    try:
        return meet_target(cost, target, guess, bounds, slope, tolerance)
    except UnreachableError as error:
        raise _cannot_be_reached(target, delta, error) from None


def _cannot_be_reached(target: float, delta: float, error: UnreachableError) -> ValueError:
    return ValueError(f"epsilon {target:g} at delta {delta:g} cannot be reached: {error}.")


def _largest(
    segments: Callable[[float], list[Segment]],
    target: float,
    delta: float,
    accountant: str,
    *,
    guess: float,
    bounds: tuple[int, int],
    slope: float,
) -> int:
    """The largest whole number at which the cost of `segments`, which rises, keeps to the target.

    In the stages of `_meet`.

    Raises:
        UnreachableError: not even the smallest one does.
    """

    def cost(x: float, accountant: str = accountant) -> float:
        return epsilon(segments(x), delta, accountant).epsilon

    if accountant in ("auto", "pld") and not _has_closed_form(segments(bounds[0])):
        try:
            guess, slope = _neighbourhood(segments, target, delta, guess, bounds, slope)
            removals = _by(_REMOVALS, segments, delta)
            guess = largest_integer(removals, target, math.floor(guess), bounds, slope)
            more_by_renyi = (
                accountant == "auto" and guess < bounds[1] and cost(guess + 1, "rdp") <= target
            )
            if cost(guess) <= target and not more_by_renyi:
                return guess
        except (CannotAnswerError, UnreachableError):
            pass
    return largest_integer(cost, target, math.floor(guess * (1 + 1e-12)), bounds, slope)


def _has_closed_form(segments: list[Segment]) -> bool:
    return all(mechanism.kind == "gaussian" for mechanism in releases(segments))


def _by(
    accountant: PldAccountant, segments: Callable[[float], list[Segment]], delta: float
) -> Callable[[float], float]:
    """The cost of `segments(x)` by one accountant, such as finds the way and does not count."""
    return lambda x: accountant.epsilon(releases(segments(x)), delta)


def _neighbourhood(
    segments: Callable[[float], list[Segment]],
    target: float,
    delta: float,
    guess: float,
    bounds: tuple[float, float],
    slope: float,
) -> tuple[float, float]:
    """About where the cost meets the target, and d log(cost) / d log(x) there, by the sketch."""
    sketch = _by(_SKETCH, segments, delta)
    guess = meet_target(sketch, target, guess, bounds, slope, _SKETCHED)
    return guess, _local_slope(sketch, guess, slope)


def _local_slope(cost: Callable[[float], float], x: float, default: float) -> float:
    """d log(cost) / d log(x), or the default where that is not to be had."""
    here, beside = cost(x), cost(x * 1.01)
    if not (0 < here < math.inf and 0 < beside < math.inf):
        return default
    slope = math.log(beside / here) / math.log(1.01)
    return slope if 0.2 < slope / default < 5 else default
