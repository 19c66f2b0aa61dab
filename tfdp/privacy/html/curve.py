"""Epsilon against steps, computed from the segments of a ledger."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfdp.privacy.accounting import ACCOUNTANTS, Guarantee
from tfdp.privacy.ledger import Ledger

_POINTS = 20
#: A segment of the ledger as the report holds it.
Entry = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Curve:
    """Epsilon after some numbers of steps.

    Attributes:
        title: the accountant.
        steps: increasing, from 0 to all that were made.
        epsilons: one for each of them.
    """

    title: str
    steps: tuple[int, ...]
    epsilons: tuple[float, ...]


def curves(values: Mapping[str, Any]) -> list[Curve]:
    """The report's own accountant, and Renyi's beside it if that is another.

    A few seconds of work with PLD, which composes anew for each of about twenty points.

    Args:
        values: of a `PrivacyReport`.
    """
    entries = values["segments"]
    total = sum(entry["steps"] for entry in entries)
    if not total:
        return []
    # The first step by itself: the curve leaves zero at once, not along a slope.
    steps = sorted({1, *(math.ceil(total * n / _POINTS) for n in range(1, _POINTS + 1))})
    names = {Guarantee(0, 0.5, name).accountant_title: name for name in ACCOUNTANTS[1:]}
    own = names.get(values["accountant"], "auto")
    found = [_curve(values["accountant"], own, entries, steps, values["delta"])]
    if own not in ("rdp", "gaussian") and values["epsilon_rdp"] is not None:
        found.append(_curve("RDP", "rdp", entries, steps, values["delta"]))
    return found


def _curve(
    title: str, accountant: str, entries: Sequence[Entry], steps: list[int], delta: float
) -> Curve:
    epsilons = [
        Ledger.from_dict({**Ledger().to_dict(), "segments": list(_first(entries, n))})
        .epsilon(delta, accountant)
        .epsilon
        for n in steps
    ]
    return Curve(title, (0, *steps), (0.0, *epsilons))


def _first(entries: Sequence[Entry], steps: int) -> Iterator[Entry]:
    """The segments of the first so many steps."""
    for entry in entries:
        if steps <= 0:
            return
        yield {**entry, "steps": min(entry["steps"], steps)}
        steps -= entry["steps"]
