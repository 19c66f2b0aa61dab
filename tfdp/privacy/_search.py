"""Search for the number at which a monotone cost meets its target from below."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

_MOST_STEPS = 80
_BEND = 5  # the most that a slope may differ from the one before, as a factor
_CLOSE_STEPS = 2  # steps in a bracket after which a cost may be thought to jitter
_JITTER = 16  # the most that the tolerance grows by then
_INDISTINCT = 1e-6  # what costs of neighbouring integers differ by at least, relatively
_PATIENCE = 20  # steps after which integers are searched by halves


class UnreachableError(ValueError):
    """No number in the range keeps the cost at or below its target."""


class _Bracket:
    """Points on both sides of the aim, as (z, gap) pairs; the gap rises with z."""

    def __init__(self, slope: float) -> None:
        self._slope = slope
        self._newest: list[tuple[float, float]] = []
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
        """The slope between the two newest points, as far as it is believable."""
        self._newest = [*self._newest[-2:], (z, gap)]
        before = self._newest[-2] if len(self._newest) > 1 else (z, gap)
        if before[0] != z and math.isfinite(slope := (gap - before[1]) / (z - before[0])):
            self._slope = min(max(slope, self._slope / _BEND), self._slope * _BEND)

    def _through_newest(self) -> float | None:
        """Where the parabola z(gap) through the three newest points meets the aim."""
        if len(self._newest) < 3:
            return None
        (z0, g0), (z1, g1), (z2, g2) = self._newest
        if not all(map(math.isfinite, (g0, g1, g2))) or len({g0, g1, g2}) < 3:
            return None
        first, second = (z2 - z1) / (g2 - g1), (z1 - z0) / (g1 - g0)
        return z2 - g2 * first + g2 * g1 * (first - second) / (g2 - g0)

    def enclosed(self) -> bool:
        """Whether points on both sides are known."""
        return self.below is not None and self.above is not None

    def closed(self) -> bool:
        """Whether the ends have met."""
        return self.enclosed() and self.above[0] - self.below[0] < 1e-12  # type: ignore[index]

    def next(self) -> float:
        """The next point to try: inside the bracket, or a bold step to the side that is missing."""
        if self.below and self.above:
            curved = self._through_newest()
            if curved is not None and self.below[0] < curved < self.above[0]:
                return curved
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

    Steps between logarithms, where these costs are nearly straight, kept inside a shrinking
    bracket. Should the cost jump over the target, or never come near it within the bounds, the
    result is the x nearest to it that stays at or below the target. A cost that jitters, as one
    on a grid does, cannot be met more closely than it jitters: every step too many doubles the
    tolerance, up to sixteen times.

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
    nearest: tuple[float, float] = (0.0, -1.0)
    enclosed = 0
    for _ in range(_MOST_STEPS):
        value = cost(math.exp(sign * z))
        below = value <= target
        if below and value >= nearest[1]:
            nearest = (z, value)
        growth = min(2 ** max(0, enclosed - _CLOSE_STEPS), _JITTER)
        if nearest[1] >= target * (1 - tolerance * growth):
            break
        bracket.add(z, _log(value) - aim, below=below)
        enclosed += bracket.enclosed()
        if bracket.closed() or z == (ceiling if below else floor):
            break
        z = min(max(bracket.next(), floor), ceiling)
    if nearest[1] < 0:
        raise UnreachableError(f"no value between {bounds[0]:g} and {bounds[1]:g} is enough")
    return math.exp(sign * nearest[0])


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

    Or one whose cost is within a millionth of it, which is nearer than numbers beyond some
    millions can be told apart. The steps of `meet_target`, each to the integer below: a cost that
    is straight between logarithms takes about four. A bracket that is slow to close is halved.

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
        if excessive - affordable == 1 or target * (1 - _INDISTINCT) <= value <= target:
            break
        if bracket.enclosed() and step >= _PATIENCE:
            here = (affordable + excessive) // 2
        else:
            here = min(max(math.floor(math.exp(bracket.next())), affordable + 1), excessive - 1)
    if affordable < bounds[0]:
        raise UnreachableError(f"not even {bounds[0]} is affordable")
    return affordable
