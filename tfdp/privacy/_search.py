"""Search for the number at which a monotone cost meets its target from below."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

_MOST_STEPS = 80
_STEEPEST = 5  # times the slope so far
_PATIENCE = 20  # steps after which integers are searched by halves


class UnreachableError(ValueError):
    """No number in the range keeps the cost at or below its target."""


class _Bracket:
    """Points on both sides of the aim, as (z, gap) pairs; the gap rises with z."""

    def __init__(self, slope: float) -> None:
        self._slope = slope
        self._newest: tuple[float, float] | None = None
        self.below: tuple[float, float] | None = None
        self.above: tuple[float, float] | None = None
        self._last = 0

    def add(self, z: float, gap: float, *, below: bool) -> None:
        """Takes a point in. An end that stays put twice loses half its gap (Illinois)."""
        self._learn_slope(z, gap)
        side = -1 if below else 1
        repeated, self._last = side == self._last, side
        if below:
            self.below = (z, gap)
            if repeated and self.above:
                self.above = (self.above[0], self.above[1] / 2)
        else:
            self.above = (z, gap)
            if repeated and self.below:
                self.below = (self.below[0], self.below[1] / 2)

    def _learn_slope(self, z: float, gap: float) -> None:
        """The slope between the two newest points, where it is believable."""
        before, self._newest = self._newest, (z, gap)
        if before and before[0] != z:
            slope = (gap - before[1]) / (z - before[0])
            if _STEEPEST > slope / self._slope > 1 / _STEEPEST:
                self._slope = slope

    def closed(self) -> bool:
        """Whether the ends have met."""
        return bool(self.below and self.above) and self.above[0] - self.below[0] < 1e-12  # type: ignore[index]

    def next(self) -> float:
        """A secant through the bracket, or a bold step towards the side that is missing."""
        if self.below and self.above:
            share = self.below[1] / (self.below[1] - self.above[1])
            if not 0 < share < 1:  # an end is zero or infinite
                share = 0.5
            return self.below[0] + (self.above[0] - self.below[0]) * share
        z, gap = self.below or self.above  # type: ignore[misc]
        step = -gap / self._slope
        return z + math.copysign(min(max(abs(step), 1e-8), 2.0), step)


def meet_target(
    cost: Callable[[float], float],
    target: float,
    guess: float,
    bounds: tuple[float, float],
    slope: float,
    tolerance: float,
) -> float:
    """Finds x with target * (1 - tolerance) <= cost(x) <= target.

    Secant steps between logarithms, where these costs are nearly straight, kept inside a
    shrinking bracket. Should the cost jump over the target, or never come near it within the
    bounds, the result is the costliest x seen that stays at or below the target.

    Args:
        cost: non-negative and monotone, up to rounding.
        target: the cost to meet, above 0.
        guess: where to start.
        bounds: smallest and largest x, both above 0.
        slope: about d log(cost) / d log(x); its sign tells whether the cost rises.
        tolerance: how far below its target, relatively, the cost may end.

    Raises:
        UnreachableError: the cost exceeds the target on the whole range.
    """
    # Walk along z, in which the cost rises: log x, or -log x where it falls with x.
    sign = math.copysign(1.0, slope)
    start, *ends = (sign * math.log(x) for x in (guess, *bounds))
    floor, ceiling = sorted(ends)
    aim = math.log(target) + math.log1p(-tolerance / 2)
    bracket = _Bracket(abs(slope))
    z = min(max(start, floor), ceiling)
    for _ in range(_MOST_STEPS):
        value = cost(math.exp(sign * z))
        if target * (1 - tolerance) <= value <= target:
            return math.exp(sign * z)
        below = value <= target
        bracket.add(z, _log(value) - aim, below=below)
        if bracket.closed() or z == (ceiling if below else floor):
            break
        z = min(max(bracket.next(), floor), ceiling)
    if bracket.below is None:
        raise UnreachableError(f"no value between {bounds[0]:g} and {bounds[1]:g} is enough")
    return math.exp(sign * bracket.below[0])


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def largest_integer(
    cost: Callable[[int], float],
    target: float,
    guess: int,
    bounds: tuple[int, int],
    slope: float,
) -> int:
    """The largest integer of a range whose cost stays at or below the target.

    The steps of `meet_target`, each to the integer below: a cost that is straight between
    logarithms takes about four. A bracket that is slow to close is halved instead.

    Args: as for `meet_target`; the cost rises.

    Raises:
        UnreachableError: the cost of the smallest one is already above the target.
    """
    affordable, excessive = bounds[0] - 1, bounds[1] + 1
    bracket = _Bracket(slope)
    aim = math.log(target)
    here = min(max(guess, bounds[0]), bounds[1])
    for step in itertools.count():
        value = cost(here)
        below = value <= target
        bracket.add(math.log(here), _log(value) - aim, below=below)
        if below:
            affordable = here
        else:
            excessive = here
        if excessive - affordable == 1:
            break
        enclosed = bracket.below and bracket.above
        if enclosed and step >= _PATIENCE:
            here = (affordable + excessive) // 2
        else:
            here = min(max(math.floor(math.exp(bracket.next())), affordable + 1), excessive - 1)
    if affordable < bounds[0]:
        raise UnreachableError(f"not even {bounds[0]} is affordable")
    return affordable
