"""One segment of a ledger."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tfdp.privacy.settings import StepSettings


class LedgerError(ValueError):
    """The ledger was changed, damaged or taken away, or cannot be continued."""


@dataclasses.dataclass(frozen=True)
class LedgerEntry:
    """Updates made in a row, by one process, under one setting.

    Attributes:
        id: random name of the segment; only the process that began a segment adds to it.
        started: when it began, UTC, ISO 8601.
        settings: what each step did.
        steps: how many were made.
        stream: name of the randomness the steps were numbered in, or None.
        first: number of the first step in that stream; 0 without one.
    """

    id: str
    started: str
    settings: StepSettings
    steps: int
    stream: str | None = None
    first: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The entry as plain JSON values."""
        return {**dataclasses.asdict(self), "settings": self.settings.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LedgerEntry:
        """The inverse of `to_dict`."""
        return cls(**{**values, "settings": StepSettings.from_dict(values["settings"])})

    def covers(self, settings: StepSettings, stream: str, update: int) -> bool:
        """Whether it holds that very update: same settings, same randomness, same number."""
        same = self.settings == settings and self.stream == stream
        return same and self.first <= update < self.first + self.steps
