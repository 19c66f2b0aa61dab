"""The file of a ledger: one line of JSON for each step, checksums chained, written in place.

    {"ledger": "tfdp", "version": 1, "check": "…"}
    {"id": "…", "started": "…", "steps": 1, "settings": {…}, "stream": null, …, "check": "…"}
    {"steps": 2, "check": "…"}
    {"steps": 3, "check": "…"}
    {"end": true}

A line with an id begins a segment, or raises the count of one that is known; a line without one
is the next count of the segment above it. Lines are only ever added. They are filled up with
blanks to slots of 64 bytes, and blanks are kept free before the last line, {"end": true}: a step
then overwrites one slot inside one sector of the disk, which happens whole or not at all, and the
file keeps its size, which halves the time of a flush. Longer lines get their line end in a write
of its own, after the rest is on the disk. A crash can therefore only leave a fragment in front of
{"end": true}, of a step that was never made; it is ignored. A file without {"end": true} was cut,
and a line whose checksum does not fit was changed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tfdp.files import write_durably
from tfdp.privacy.settings import StepSettings

VERSION = 1
_SLOT = 64
_ROOM = 64 * _SLOT  # by which the file grows
_END = '{"end": true}'
_CHECK = ', "check": "'


class LedgerError(ValueError):
    """The ledger was changed, damaged or removed, or cannot be continued."""


@dataclasses.dataclass(frozen=True)
class LedgerEntry:
    """A segment of a ledger: steps made in a row, by one process, under one setting.

    Attributes:
        id: Random name of the segment. Only the process that began a segment adds to it.
        started: When it began, UTC, ISO 8601.
        settings: What each step did.
        steps: How many were made.
        stream: Name of the randomness in which the steps are numbered, or None.
        first: Number of the first step in that stream; 0 without one.
    """

    id: str
    started: str
    settings: StepSettings
    steps: int
    stream: str | None = None
    first: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Returns the entry as plain JSON values."""
        return {**dataclasses.asdict(self), "settings": self.settings.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LedgerEntry:
        """Returns the entry that `to_dict` was called on."""
        return cls(**{**values, "settings": StepSettings.from_dict(values["settings"])})

    def covers(self, settings: StepSettings, stream: str, step: int) -> bool:
        """Returns whether it holds that very step: same settings, randomness and number."""
        same = self.settings == settings and self.stream == stream
        return same and self.first <= step < self.first + self.steps


class _Tail(NamedTuple):
    """How a ledger's file ends: bytes of lines, bytes in all, the last line and its checksum."""

    used: int
    size: int
    last: bytes
    check: str


class LedgerFile:
    """A ledger's file, open for writing. It does not know what the entries mean.

    Attributes:
        entries: What the file held when it was opened.
    """

    def __init__(self, path: Path) -> None:
        """Opens the file, creates it if need be, and removes what a crash left unfinished.

        Raises:
            LedgerError: The file was changed, cut or damaged.
        """
        self._path = path
        lines = _whole_lines(path) if path.exists() else [_header()]
        self.entries = _entries(path, lines)
        data = _layout(lines)
        if not path.exists() or path.read_bytes() != data:
            write_durably(path, data)
        used = sum(len(_padded(line)) for line in lines)
        self._tail = _Tail(used, len(data), _padded(lines[-1]), _check_of(lines[-1]))
        self._descriptor: int | None = os.open(path, os.O_RDWR)

    def begin(self, entry: LedgerEntry) -> None:
        """Adds a segment, or the newer count of one; on the disk when this returns.

        Raises:
            LedgerError: The file was removed, replaced or changed since it was last written.
        """
        self._append(json.dumps(entry.to_dict()))

    def merge(self, entries: Iterable[LedgerEntry]) -> None:
        """Adds several segments, or newer counts of segments; see `begin`."""
        for entry in entries:
            self.begin(entry)

    def count(self, steps: int) -> None:
        """Adds the next count of the segment added last; on the disk when this returns.

        Raises:
            LedgerError: See `begin`.
        """
        self._append(f'{{"steps": {steps}}}')

    def _append(self, text: str) -> None:
        descriptor = self.check_untouched()
        line, check = _with_check(text, self._tail.check)
        data = _padded(line)
        used = self._tail.used + len(data)
        tail = _Tail(used, max(self._tail.size, _size_for(used)), data, check)
        try:
            self._write(descriptor, tail)
        except BaseException:
            self._take_back(descriptor)
            raise
        self._tail = tail

    def _write(self, descriptor: int, tail: _Tail) -> None:
        before = self._tail
        if tail.size > before.size:  # more room, and an end behind it
            _pwrite(descriptor, _end(tail.size - before.size), before.size)
            os.fdatasync(descriptor)
        if len(tail.last) > _SLOT:
            _pwrite(descriptor, tail.last[:-1], before.used)
            os.fdatasync(descriptor)
            _pwrite(descriptor, tail.last[-1:], tail.used - 1)
        else:
            _pwrite(descriptor, tail.last, before.used)
        os.fdatasync(descriptor)

    def _take_back(self, descriptor: int) -> None:
        """Removes what may be there of a line that could not be written: its step is not made."""
        try:
            os.ftruncate(descriptor, self._tail.size)
            _pwrite(descriptor, _end(self._tail.size - self._tail.used), self._tail.used)
        except BaseException:
            self.close()
            raise

    def check_untouched(self) -> int:
        """Checks that the file is what was last written, and returns its descriptor.

        A lock keeps other writers out, but neither a file system without locks nor people.

        Raises:
            LedgerError: It is closed, or was removed, replaced or changed.
        """
        descriptor = self._descriptor
        if descriptor is None:
            raise LedgerError(f"{self._path} is closed.")
        opened = os.fstat(descriptor)
        try:
            same = os.path.samestat(os.stat(self._path), opened)
        except FileNotFoundError:
            same = False
        tail = self._tail
        last = os.pread(descriptor, len(tail.last), tail.used - len(tail.last))
        if not same or opened.st_size != tail.size or last != tail.last:
            raise LedgerError(
                f"{self._path} was removed, replaced or changed while it was in use; "
                "no step is made, because it could not be recorded."
            )
        return descriptor

    def close(self) -> None:
        """Closes the file; harmless if that was done before."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def read(path: Path) -> list[LedgerEntry]:
    """Reads a ledger and checks every line of it.

    Raises:
        LedgerError: A line was changed, is missing or is damaged; the message names it.
    """
    return _entries(path, _whole_lines(path))


def _whole_lines(path: Path) -> list[str]:
    """Returns the lines that were written to their end, without what fills them up."""
    *lines, rest = path.read_bytes().decode(errors="replace").split("\n")
    lines = [line.strip() for line in lines]
    whole = lines[: next((i for i, line in enumerate(lines) if line.endswith(_END)), 0)]
    if not whole and not any(lines):
        raise LedgerError(f"{path} is empty; a ledger has at least its header line.")
    after = [line for line in lines[len(whole) :] if line]
    # A fragment of an end is what a crash leaves while the file grows.
    if not whole or not all(map(_ends, after)) or not _END.startswith(rest.strip()):
        raise LedgerError(
            f"{path} was cut or added to: nothing but its end mark may stand after its last line. "
            "Restore it from a copy, such as the one inside a checkpoint."
        )
    return whole


def _ends(line: str) -> bool:
    return line.endswith(_END)


def _entries(path: Path, lines: Sequence[str]) -> list[LedgerEntry]:
    """Returns the segments with their latest counts, checked line by line."""
    entries: dict[str, LedgerEntry] = {}
    latest = check = ""
    for number, line in enumerate(lines, start=1):
        text = line.rpartition(_CHECK)[0] + "}"
        expected, check = _with_check(text, check)
        try:
            if line != expected:
                raise ValueError("its checksum does not fit")
            fields = json.loads(text)
            if number == 1:
                if fields.get("ledger") != "tfdp" or fields["version"] != VERSION:
                    raise LedgerError(f"{path} is not a tfdp ledger of version {VERSION}.")
            elif "id" in fields:
                latest = fields["id"]
                entries[latest] = LedgerEntry.from_dict(fields)
            else:
                entries[latest] = dataclasses.replace(entries[latest], steps=fields["steps"])
        except LedgerError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise LedgerError(
                f"line {number} of {path} was changed or damaged: its checksum does not fit. "
                "Epsilon cannot be computed from it; restore the file, or the copy inside a "
                "checkpoint."
            ) from error
    return list(entries.values())


def _header() -> str:
    return _with_check(json.dumps({"ledger": "tfdp", "version": VERSION}), "")[0]


def _with_check(text: str, previous: str) -> tuple[str, str]:
    """Returns a JSON object with its checksum in it, and the checksum.

    Args:
        text: The object without a checksum.
        previous: The checksum of the line before, which this one continues.
    """
    check = hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()[:16]
    return f'{text[:-1]}{_CHECK}{check}"}}', check


def _check_of(line: str) -> str:
    return line.rpartition(_CHECK)[2][:-2]


def _layout(lines: Sequence[str]) -> bytes:
    """Returns the bytes of a file with these lines."""
    data = b"".join(map(_padded, lines))
    return data + _end(_size_for(len(data)) - len(data))


def _size_for(used: int) -> int:
    """Returns the size of a file with so many bytes of lines: free slots, and the end."""
    return -(-(used + _SLOT) // _ROOM) * _ROOM


def _padded(line: str) -> bytes:
    """Returns the line, filled up to whole slots, its line end included."""
    data = line.encode()
    return data.ljust(-(-(len(data) + 1) // _SLOT) * _SLOT - 1) + b"\n"


def _end(size: int) -> bytes:
    """Returns the last line of a file, blanks before it."""
    return _END.rjust(size - 1).encode() + b"\n"


def _pwrite(descriptor: int, data: bytes, at: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, at)
        data, at = data[written:], at + written
