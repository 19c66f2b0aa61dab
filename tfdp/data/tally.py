"""Counts of distinct examples, which may outlast the process that made them."""

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
    """Counts each example once for each reason, from any thread."""

    def __init__(self) -> None:
        self._examples: dict[str, set[int]] = {}
        self._lock = threading.Lock()
        self._writer: Writer | None = None

    def add(self, reason: str, examples: Iterable[int]) -> None:
        """Notes that `examples` met with `reason`."""
        with self._lock:
            known = self._examples.setdefault(reason, set())
            new = set(map(int, examples)) - known
            if new and self._writer is not None:
                self._writer(reason, new)
            known |= new

    def counts(self) -> dict[str, int]:
        """Returns the number of distinct examples of each reason."""
        return {reason: len(examples) for reason, examples in sorted(self.examples().items())}

    def examples(self) -> dict[str, set[int]]:
        """Returns the examples of each reason."""
        with self._lock:
            return {reason: set(examples) for reason, examples in self._examples.items()}

    def write_to(self, writer: Writer | None) -> None:
        """Calls `writer` from now on with each reason and the examples that are new to it."""
        with self._lock:
            self._writer = writer


@contextlib.contextmanager
def kept_in(path: str | os.PathLike, tallies: dict[str, Tally]) -> Iterator[None]:
    """Adds what a file holds to tallies, and to the file what they hold and meet.

    Args:
        path: The file, lines of `{name: {reason: [examples]}}`.
        tallies: By name.

    Raises:
        ValueError: It is a file of something else.
    """
    path = Path(path)
    for name, reason, examples in _read(path):
        if name not in tallies:
            raise ValueError(f"{path} holds counts of {name}; expected {', '.join(tallies)} only.")
        tallies[name].add(reason, examples)
    held = [(name, *item) for name, t in tallies.items() for item in t.examples().items()]
    write_whole(path, "".join(_line(*each) for each in held))
    with path.open("ab", buffering=0) as file:  # a line a call, whole, and out of the process
        for name, tally in tallies.items():
            tally.write_to(functools.partial(_append, file, name))
        try:
            yield
        finally:
            for tally in tallies.values():
                tally.write_to(None)


def _append(file: io.RawIOBase, name: str, reason: str, examples: set[int]) -> None:
    file.write(_line(name, reason, examples).encode())


def _line(name: str, reason: str, examples: set[int]) -> str:
    return json.dumps({name: {reason: sorted(examples)}}) + "\n"


def _read(path: Path) -> Iterator[tuple[str, str, list[int]]]:
    """Name, reason and examples of every line; a last line that a crash cut short is skipped."""
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    for line in lines:
        if not line.endswith(b"\n"):
            return
        try:
            [(name, counted)] = json.loads(line).items()
            yield from ((name, reason, [*map(int, r)]) for reason, r in counted.items())
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path}: {line.strip()[:80]!r} holds no counts of examples. "
                "Name a file that holds nothing else."
            ) from error
