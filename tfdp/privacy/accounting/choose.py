"""Which accountant answers: the tightest valid one, with a safe one behind it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Protocol

from tfdp import checks
from tfdp.privacy.accounting.gaussian import GaussianAccountant
from tfdp.privacy.accounting.pld import PldAccountant
from tfdp.privacy.accounting.rdp import RdpAccountant
from tfdp.privacy.accounting.releases import (
    CannotAnswerError,
    Releases,
    releases,
    unamplified,
    worst_case,
)
from tfdp.privacy.settings import Segment

#: Deltas below it are lost in rounding.
TINY_DELTA = 1e-300


def checked_delta(value: object) -> float:
    """Returns a delta as a float strictly between 0 and 1."""
    delta = checks.share("delta", value, why="commonly below 1/N")
    if delta < TINY_DELTA:
        raise ValueError(f"delta must be at least {TINY_DELTA:g}, got {value!r}.")
    return delta


class Accountant(Protocol):
    """Turns releases and delta into epsilon."""

    name: str
    title: str

    def epsilon(self, counts: Releases, delta: float) -> float:
        """Returns an upper bound on epsilon of all the releases together.

        Args:
            counts: At least one mechanism, each with a positive multiplier and count.
            delta: Strictly between 0 and 1.

        Raises:
            CannotAnswerError: There is no trustworthy finite answer; the message says why.
        """


#: With less noise than this, epsilon is beyond a billion; we call it infinite.
LEAST_MULTIPLIER = 1e-5
#: From the tightest to the loosest where they apply.
_ACCOUNTANTS: dict[str, Accountant] = {
    accountant.name: accountant
    for accountant in (GaussianAccountant(), PldAccountant(), RdpAccountant())
}
#: The same on a grid of privacy losses that is coarser: up to a hundredth looser, three times as
#: fast.
_QUICKER: dict[str, Accountant] = {**_ACCOUNTANTS, "pld": PldAccountant(most_points=8_000)}
#: "auto", and every accountant by name.
ACCOUNTANTS = ("auto", *_ACCOUNTANTS)
_TITLES = {name: accountant.title for name, accountant in _ACCOUNTANTS.items()}


def accountant_with_title(title: object) -> str:
    """Returns the name of the accountant that a report calls by a title, or "auto"."""
    return next((name for name, known in _TITLES.items() if known == title), "auto")


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """An (epsilon, delta) guarantee and where it comes from.

    Attributes:
        epsilon: Never below the truth; infinite if there is no guarantee.
        delta: The delta at which it holds.
        accountant: The one that answered: "gaussian", "pld", "rdp", "worst_case" (no amplification,
            when no other could) or "none" (nothing to account for, or no noise at all).
        note: Empty, or why it is not the answer that was asked for.
    """

    epsilon: float
    delta: float
    accountant: str
    note: str = ""

    @property
    def accountant_title(self) -> str:
        """The accountant's name for people."""
        return _TITLES.get(self.accountant, self.accountant.replace("_", " "))


def epsilon(
    segments: Iterable[Segment], delta: float, accountant: str = "auto", *, quickly: bool = False
) -> Guarantee:
    """Returns epsilon of all segments together, at `delta`.

    Args:
        segments: What was run, in any order.
        delta: Strictly between 0 and 1.
        accountant: "auto" for the tightest valid one, or "gaussian", "pld" or "rdp". If the
            one asked for cannot answer, the next safe one does and the note says so.
        quickly: Whether epsilon may come out up to a hundredth too large, in a third of the time.

    Raises:
        ValueError: Delta or accountant is out of range, or the segments cannot be composed.
    """
    checks.one_of("accountant", accountant, ACCOUNTANTS)
    return account(releases(segments), checked_delta(delta), accountant, quickly=quickly)


def epsilon_by_accountant(segments: Iterable[Segment], delta: float) -> dict[str, float | None]:
    """Returns what each accountant says about the same segments; None where one cannot answer.

    Raises:
        ValueError: Delta is out of range, or the segments cannot be composed.
    """
    counts, delta = releases(segments), checked_delta(delta)
    trivial = _trivial(counts, delta)
    if trivial:
        return dict.fromkeys(_ACCOUNTANTS, trivial.epsilon)
    answers: dict[str, float | None] = {}
    for name, accountant in _ACCOUNTANTS.items():
        try:
            answers[name] = accountant.epsilon(counts, delta)
        except CannotAnswerError:
            answers[name] = None
    return answers


def epsilon_without_amplification(segments: Iterable[Segment], delta: float) -> float:
    """Returns epsilon if sampling hid nothing and each pass used each example once."""
    return account(unamplified(segments), checked_delta(delta), "gaussian").epsilon


def account(counts: Releases, delta: float, accountant: str, *, quickly: bool = False) -> Guarantee:
    """Does what `epsilon` does, for releases."""
    trivial = _trivial(counts, delta)
    if trivial:
        return trivial
    order = list(_ACCOUNTANTS)
    if accountant != "auto":
        order.sort(key=lambda name: name != accountant)
    asked = [(_QUICKER if quickly else _ACCOUNTANTS)[name] for name in order]
    answers, failures = _ask(asked, counts, delta, first_only=accountant != "auto")
    if not answers:
        answers["worst_case"] = GaussianAccountant().epsilon(worst_case(counts), delta)
    best = min(answers, key=lambda name: answers[name])
    return Guarantee(answers[best], delta, best, _note(accountant, best, failures))


def _trivial(counts: Releases, delta: float) -> Guarantee | None:
    """Returns the answers that need no accountant."""
    if not counts:
        return Guarantee(0.0, delta, "none", "no step has been made")
    least = min(mechanism.multiplier for mechanism in counts)
    if least < LEAST_MULTIPLIER:
        return Guarantee(math.inf, delta, "none", f"noise multiplier {least:g}: no guarantee")
    return None


def _ask(
    order: list[Accountant], counts: Releases, delta: float, *, first_only: bool
) -> tuple[dict[str, float], dict[str, str]]:
    """Returns answers, and why there is none, by accountant; an exact answer ends the search."""
    answers: dict[str, float] = {}
    failures: dict[str, str] = {}
    for accountant in order:
        try:
            answers[accountant.name] = accountant.epsilon(counts, delta)
        except CannotAnswerError as error:
            failures[accountant.name] = str(error)
            continue
        if first_only or accountant.name == "gaussian":
            break
    return answers, failures


def _note(asked: str, answered: str, failures: dict[str, str]) -> str:
    """Returns why the best accountant, or the one asked for, did not answer."""
    wanted = "pld" if asked == "auto" else asked
    if answered == wanted or wanted not in failures:
        return ""
    return f"{_TITLES[wanted]} cannot answer: {failures[wanted]}"
