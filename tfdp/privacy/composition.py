"""What several runs on the same examples cost together."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfdp import checks
from tfdp.privacy.accounting import ACCOUNTANTS, Guarantee, checked_delta, epsilon_by_accountant
from tfdp.privacy.accounting import epsilon as account
from tfdp.privacy.ledger import Ledger
from tfdp.privacy.plan import PrivacyPlan
from tfdp.privacy.report import to_json
from tfdp.privacy.settings import Segment, common_adjacency

PUBLIC = "public"  #: Stands for a part that used no private example, and is free.

Part = Ledger | PrivacyPlan | Segment | Sequence[Segment] | str | os.PathLike


@dataclasses.dataclass(frozen=True)
class ComposedPart:
    """One of the runs.

    Attributes:
        name: As given, or a number.
        steps: How many private steps it made, or planned; 0 for public data.
        epsilon: What it costs alone.
        public: Whether it used no private example.
        counted_before: Whether steps of it belong to an earlier part too (copies of a ledger),
            and are counted there.
    """

    name: str
    steps: int
    epsilon: float
    public: bool = False
    counted_before: bool = False


@dataclasses.dataclass(frozen=True)
class Composition:
    """Several runs and what they cost together; see `compose`.

    Attributes:
        guarantee: Of all of them together.
        by_accountant: Epsilon of all of them by every accountant, None where one cannot answer.
        adjacency: Of the guarantee.
        segments: All steps, for `spent=` of the calibrations.
        parts: The runs, as given.
    """

    guarantee: Guarantee
    by_accountant: dict[str, float | None]
    adjacency: str
    segments: tuple[Segment, ...]
    parts: tuple[ComposedPart, ...]

    @property
    def epsilon(self) -> float:
        """Epsilon of all runs together."""
        return self.guarantee.epsilon

    def to_dict(self) -> dict[str, Any]:
        """Returns the composition as values that JSON can hold (infinities as the string "inf")."""
        return to_json(
            {
                "schema_version": 1,
                "epsilon": self.epsilon,
                "delta": self.guarantee.delta,
                "accountant": self.guarantee.accountant_title,
                **{f"epsilon_{name}": value for name, value in self.by_accountant.items()},
                "adjacency": self.adjacency,
                "parts": [dataclasses.asdict(part) for part in self.parts],
                "note": self.guarantee.note,
            }
        )

    def __str__(self) -> str:
        delta = self.guarantee.delta
        width = max((len(part.name) for part in self.parts), default=0) + 2
        lines = [
            f"Privacy of {len(self.parts)} parts together: (epsilon, delta) = "
            f"({self.epsilon:.4g}, {delta:.3g}), by {self.guarantee.accountant_title}"
        ]
        lines += [f"  {part.name:<{width}}{_words(part)}" for part in self.parts]
        if self.guarantee.note:
            lines.append(f"  note: {self.guarantee.note}")
        lines.append(
            "  It covers all of these models, and a choice among them that looks at nothing else "
            "that is private."
        )
        return "\n".join(lines)


def compose(
    parts: Mapping[str, Part] | Iterable[Part], delta: float, accountant: str = "auto"
) -> Composition:
    """Returns the guarantee of several runs together: fits, segments, the models of a search.

    Releases compose adaptively: later runs may depend on the results of earlier ones. Never add
    epsilons up: that is loose, and wrong at a fixed delta.

    Args:
        parts: By name, or in a row: ledgers, files or folders of ledgers, plans (as if all their
            steps were made), segments, or `PUBLIC` for data that are public. Segments that
            several ledgers know, because one is a copy of the other, count once.
        delta: Strictly between 0 and 1.
        accountant: As for `tfdp.privacy.epsilon`.

    Raises:
        TypeError: A part is of another kind.
        ValueError: The parts protect different units or adjacencies, or a number is out of range.
        FileNotFoundError: A path holds no ledger.
        LedgerError: A ledger was changed or damaged, or two of them contradict each other.
    """
    checks.one_of("accountant", accountant, ACCOUNTANTS)
    delta = checked_delta(delta)
    named = parts if isinstance(parts, Mapping) else {str(i): p for i, p in enumerate(parts, 1)}
    union, loose = Ledger(), []
    composed = []
    for name, part in named.items():
        if isinstance(part, str) and part == PUBLIC:
            composed.append(ComposedPart(str(name), 0, 0.0, public=True))
            continue
        found = _segments_or_ledger(part)
        own = found.segments() if isinstance(found, Ledger) else found
        repeated = False
        if isinstance(found, Ledger):
            known = {entry.id for entry in union.entries}
            repeated = any(entry.id in known for entry in found.entries)
            union.merge(found)
        else:
            loose += own
        steps = sum(segment.steps for segment in own)
        alone = account(own, delta, accountant).epsilon
        composed.append(ComposedPart(str(name), steps, alone, counted_before=repeated))
    segments = [segment for segment in (*union.segments(), *loose) if segment.steps]
    return Composition(
        account(segments, delta, accountant),
        epsilon_by_accountant(segments, delta),
        common_adjacency(segments),
        tuple(segments),
        tuple(composed),
    )


def _segments_or_ledger(part: Part) -> Ledger | list[Segment]:
    if isinstance(part, Ledger):
        return part
    if isinstance(part, PrivacyPlan):
        return [Segment(part.settings, part.steps)]
    if isinstance(part, Segment):
        return [part]
    if isinstance(part, str | os.PathLike):
        return Ledger.read(Path(part))
    if isinstance(part, Sequence):
        segments = [item for item in part if isinstance(item, Segment)]
        if len(segments) == len(part):
            return segments
    raise TypeError(
        f"compose: expected ledgers, their paths, plans, segments or PUBLIC, got {part!r}."
    )


def _words(part: ComposedPart) -> str:
    if part.public:
        return "public data: spends no privacy"
    also = ", some of them counted in an earlier part" if part.counted_before else ""
    return f"{part.steps} steps{also}; alone epsilon = {part.epsilon:.4g}"
