"""The privacy report as a page: the template report.html.jinja, filled with one dictionary."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from tfdp.privacy import report_text
from tfdp.privacy.accounting import accountant_with_title, epsilon
from tfdp.privacy.ledger_file import LedgerEntry
from tfdp.privacy.settings import Segment

_TEMPLATE = "report.html.jinja"
_POINTS = 20
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def render(values: Mapping[str, Any], made: datetime.date) -> str:
    """Returns a privacy report for people: one HTML file without outside references or scripts.

    Args:
        values: Of a `PrivacyReport`.
        made: The day on which it is made.
    """
    curves = list(_curves(values))
    return _template().render(
        v={"counts": {}, **values},  # a report that was given away may lack its counts
        said=report_text.phrases(values),
        made=made,
        accountants=list(_accountants(values)),
        curves=curves,
        chart=_chart(curves, values["target_epsilon"]),
    )


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(figure=figure, count=count, percent=percent)
    environment.tests["infinite"] = math.isinf
    return environment.get_template(_TEMPLATE)


def figure(value: float | None, digits: int = 4) -> str:
    """Returns at most so many digits, powers of ten for what is very small or very large."""
    if value is None:
        return "no answer"
    if math.isinf(value):
        return "∞"
    text = f"{value:.{digits}g}"
    if "e" not in text:
        return text
    mantissa, exponent = text.split("e")
    power = "10" + str(int(exponent)).translate(_SUPERSCRIPTS)
    return power if mantissa == "1" else f"{mantissa} × {power}"


def count(value: float) -> str:
    """Returns a whole number, in groups of three digits."""
    return f"{value:,.0f}"


def percent(fraction: float) -> str:
    """Returns a fraction of one, never rounded to none or all of them."""
    text = f"{fraction:.2%}"
    if text == "100.00%" and fraction < 1:
        return "more than 99.99%"
    return text if text != "0.00%" or fraction == 0 else f"{100 * fraction:.1g}%"


def ticks(top: float, wanted: int = 5) -> list[float]:
    """Returns round numbers from 0 to `top` or less, about as many as wanted."""
    rough = top / wanted
    base = 10.0 ** math.floor(math.log10(rough))
    step = next(base * factor for factor in (1, 2, 2.5, 5, 10) if base * factor >= rough * 0.999)
    return [step * number for number in range(math.floor(top / step * 1.0001) + 1)]


def _accountants(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields epsilon by accountant, that of the report included."""
    rows = {
        "PLD (dp-accounting)": values["epsilon_pld"],
        "RDP (tensorflow-privacy)": values["epsilon_rdp"],
        "exact Gaussian": values["epsilon_gaussian"],
        "without amplification by sampling": values["epsilon_without_amplification"],
    }
    if values["accountant"] not in ("none", *rows):
        yield values["accountant"], figure(values["epsilon"])
    for title, epsilon_ in rows.items():
        yield title, figure(epsilon_)


@dataclasses.dataclass(frozen=True)
class Curve:
    """Epsilon after some numbers of steps.

    Attributes:
        title: The accountant.
        steps: Increasing, from 0 to all that were made.
        epsilons: One for each of them.
    """

    title: str
    steps: tuple[int, ...]
    epsilons: tuple[float, ...]

    def points(self) -> Iterator[tuple[int, float]]:
        """Yields pairs of steps and epsilon."""
        return zip(self.steps, self.epsilons, strict=True)


def _curves(values: Mapping[str, Any]) -> Iterator[Curve]:
    """Yields the curve of the report's own accountant, and Rényi's if that is another.

    A few seconds of work with PLD, which composes anew for each of about twenty points.
    """
    entries = [LedgerEntry.from_dict(entry) for entry in values["segments"]]
    total = sum(entry.steps for entry in entries)
    if not total:
        return
    own = accountant_with_title(values["accountant"])
    accountants = {values["accountant"]: own}
    if own not in ("rdp", "gaussian") and values["epsilon_rdp"] is not None:
        accountants["RDP"] = "rdp"
    # The first step by itself: the curve leaves zero at once, not along a slope.
    steps = sorted({1, *(math.ceil(total * n / _POINTS) for n in range(1, _POINTS + 1))})
    for title, name in accountants.items():
        found = (epsilon(_first(entries, n), values["delta"], name).epsilon for n in steps)
        yield Curve(title, (0, *steps), (0.0, *found))


def _first(entries: Sequence[LedgerEntry], steps: int) -> Iterator[Segment]:
    """Yields the segments of the first so many steps."""
    for entry in entries:
        if steps <= 0:
            return
        yield Segment(entry.settings, min(entry.steps, steps))
        steps -= entry.steps


@dataclasses.dataclass(frozen=True)
class Chart:
    """Where epsilon and steps lie in the drawing of the curves.

    Its unit is such that the drawing is as wide as the screen of a phone: letters stay readable
    there.

    Attributes:
        label: What the drawing shows, for those who do not see it.
        most_steps: Steps at the right edge.
        most_epsilon: Epsilon at the upper edge.
    """

    label: str
    most_steps: int
    most_epsilon: float
    width: int = 380
    height: int = 250
    left: int = 40
    right: int = 366
    top: int = 26
    bottom: int = 206

    def x(self, steps: float) -> float:
        """Returns where a number of steps lies."""
        return round(self.left + (self.right - self.left) * steps / self.most_steps, 1)

    def y(self, epsilon_: float) -> float:
        """Returns where an epsilon lies; upwards is less."""
        return round(self.bottom - (self.bottom - self.top) * epsilon_ / self.most_epsilon, 1)

    def points(self, curve: Curve) -> str:
        """Returns a curve as SVG has it."""
        return " ".join(f"{self.x(steps)},{self.y(e)}" for steps, e in curve.points())

    @property
    def epsilons(self) -> list[dict[str, float]]:
        """The marks on the axis of epsilon."""
        return [{"value": value, "y": self.y(value)} for value in ticks(self.most_epsilon)]

    @property
    def steps(self) -> list[dict[str, float]]:
        """The marks on the axis of steps."""
        whole = [value for value in ticks(self.most_steps, 4) if value == int(value)]
        return [{"value": value, "x": self.x(value)} for value in whole]


def _chart(curves: Sequence[Curve], target: float | None) -> Chart | None:
    """Returns where the curves are drawn; None if there is nothing to draw."""
    if not curves or not all(math.isfinite(e) for curve in curves for e in curve.epsilons):
        return None
    own = curves[0]
    most = max(max(curve.epsilons) for curve in curves)
    return Chart(
        f"Epsilon against steps: {figure(own.epsilons[-1])} after {count(own.steps[-1])} "
        f"by {own.title}",
        own.steps[-1],
        1.08 * max(most, target or 0, 1e-9),
    )
