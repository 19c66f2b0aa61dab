"""Counts of distinct records, which may outlast the process that made them."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tfdp.files import write_whole

Writer = Callable[[str, set[int]], None]


class Tally:
    """Counts each record once for each reason, from any thread."""

    def __init__(self) -> None:
        self._records: dict[str, set[int]] = {}
        self._lock = threading.Lock()
        self._writer: Writer | None = None

    def add(self, reason: str, records: Iterable[int]) -> None:
        """Notes that `records` met with `reason`."""
        with self._lock:
            known = self._records.setdefault(reason, set())
            new = set(map(int, records)) - known
            if new and self._writer is not None:
                self._writer(reason, new)
            known |= new

    def counts(self) -> dict[str, int]:
        """Returns the number of distinct records of each reason."""
        return {reason: len(records) for reason, records in sorted(self.records().items())}

    def records(self) -> dict[str, set[int]]:
        """Returns the records of each reason."""
        with self._lock:
            return {reason: set(records) for reason, records in self._records.items()}

    def write_to(self, writer: Writer | None) -> None:
        """Calls `writer` from now on with each reason and the records that are new to it."""
        with self._lock:
            self._writer = writer


@contextlib.contextmanager
def kept_in(path: str | os.PathLike, tallies: dict[str, Tally]) -> Iterator[None]:
    """Adds what a file holds to tallies, and to the file what they hold and meet.

    Args:
      path: Of the file, lines of `{name: {reason: [records]}}`.
      tallies: By name.

    Raises:
      ValueError: It is another file.
    """
    path = Path(path)
    for name, reason, records in _read(path):
        if name not in tallies:
            raise ValueError(f"{path} holds counts of {name}; expected {', '.join(tallies)} only.")
        tallies[name].add(reason, records)
    held = [(name, *item) for name, t in tallies.items() for item in t.records().items()]
    write_whole(path, "".join(_line(*each) for each in held))
    with path.open("ab", buffering=0) as file:  # a line a call, whole, and out of the process
        for name, tally in tallies.items():
            tally.write_to(functools.partial(_append, file, name))
        try:
            yield
        finally:
            for tally in tallies.values():
                tally.write_to(None)


def _append(file: io.RawIOBase, name: str, reason: str, records: set[int]) -> None:
    file.write(_line(name, reason, records).encode())


def _line(name: str, reason: str, records: set[int]) -> str:
    return json.dumps({name: {reason: sorted(records)}}) + "\n"


def _read(path: Path) -> Iterator[tuple[str, str, list[int]]]:
    """Name, reason and records of every line; a last one that a crash cut short is left out."""
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    for line in lines:
        if not line.endswith(b"\n"):
            return
        try:
            [(name, counted)] = json.loads(line).items()
            yield from ((name, reason, [*map(int, r)]) for reason, r in counted.items())
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path}: {line.strip()[:80]!r} is no count of records. Name a file of their own."
            ) from error
