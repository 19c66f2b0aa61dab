"""The ledger on disk: one line of JSON per segment, chained checksums, counts kept in place.

The file is a header and one block per segment. A block starts on a multiple of 512 bytes with the
segment's count and checksum in a fixed width, so that counting one more update overwrites some
bytes inside one disk sector: such a write happens whole or not at all. Anything else (a new
segment) rewrites the file beside itself and renames it into place. A crash therefore never
leaves half a line; a line that does not add up was changed or damaged by someone else.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfdp.privacy._ledger_entry import LedgerEntry, LedgerError

VERSION = 1
_BLOCK = 512


class LedgerFile:
    """Reads and writes the entries of a ledger; knows nothing of what they mean."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._head = b""
        self._head_at = 0
        self._parent_check = ""

    def write(self, entries: Sequence[LedgerEntry]) -> None:
        """Replaces the whole file, durably and at once.

        Raises:
            LedgerError: see `count`.
        """
        if self._descriptor is not None:
            self.check_untouched()
        lines, checks = _encode(entries)
        temporary = self._path.with_name(self._path.name + ".new")
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            _write_all(descriptor, b"".join(lines))
            os.fsync(descriptor)
            os.replace(temporary, self._path)
            _sync_directory(self._path.parent)
        except BaseException:
            os.close(descriptor)
            raise
        self.close()
        self._descriptor = descriptor
        if entries:
            self._parent_check = checks[-2]
            self._head_at = sum(map(len, lines[:-1]))
            self._head = _head(entries[-1], checks[-1])

    def count(self, entry: LedgerEntry) -> None:
        """Overwrites the count of the last entry; on the disk when this returns.

        Raises:
            LedgerError: the file was removed, replaced or changed since it was last written.
        """
        descriptor = self._opened()
        self.check_untouched()
        head = _head(entry, _check(self._parent_check, entry))
        os.pwrite(descriptor, head, self._head_at)
        os.fdatasync(descriptor)
        self._head = head

    def check_untouched(self) -> None:
        """Refuses to go on with a file that is not what was last written.

        A lock keeps other writers out, but not a file system without locks, nor a tidy person.

        Raises:
            LedgerError: it is closed, or was removed, replaced or changed.
        """
        descriptor = self._opened()
        try:
            same = os.path.samestat(os.stat(self._path), os.fstat(descriptor))
        except FileNotFoundError:
            same = False
        if not same or os.pread(descriptor, len(self._head), self._head_at) != self._head:
            raise LedgerError(
                f"{self._path} was removed, replaced or changed while it was in use; "
                "no update is made, because it could not be recorded."
            )

    def _opened(self) -> int:
        if self._descriptor is None:
            raise LedgerError(f"{self._path} is closed.")
        return self._descriptor

    def close(self) -> None:
        """Closes the file; harmless if that was done before."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def read(path: Path) -> list[LedgerEntry]:
    """Reads a ledger and checks every line of it.

    Raises:
        LedgerError: a line was changed, is missing or is damaged; the message names it.
    """
    lines = path.read_bytes().decode(errors="replace").splitlines()
    if not lines:
        raise LedgerError(f"{path} is empty; a ledger has at least its header line.")
    header = _parse(path, 1, lines[0])
    if header.get("ledger") != "tfdp" or header.get("version") != VERSION:
        raise LedgerError(f"{path} is not a tfdp ledger of version {VERSION}.")
    if header.get("check") != _header_check(header.get("segments")):
        raise LedgerError(_damage(path, 1))
    if header["segments"] != len(lines) - 1:
        raise LedgerError(
            f"{path} holds {len(lines) - 1} segments where its header counts "
            f"{header['segments']}: it was truncated or added to. Restore it from a copy."
        )
    entries: list[LedgerEntry] = []
    check = header["check"]
    for number, line in enumerate(lines[1:], start=2):
        fields = _parse(path, number, line)
        found = fields.pop("check", None)
        try:
            entry = LedgerEntry.from_dict(fields)
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerError(_damage(path, number)) from error
        check = _check(check, entry)
        if found != check:
            raise LedgerError(_damage(path, number))
        entries.append(entry)
    return entries


def _encode(entries: Sequence[LedgerEntry]) -> tuple[list[bytes], list[str]]:
    """The lines of a ledger, header first, and their checksums."""
    checks = [_header_check(len(entries))]
    header = {
        "ledger": "tfdp",
        "version": VERSION,
        "segments": len(entries),
        "check": checks[0],
    }
    lines = [_pad(json.dumps(header).encode())]
    for entry in entries:
        checks.append(_check(checks[-1], entry))
        rest = entry.to_dict()
        del rest["steps"]
        body = json.dumps(rest)[1:].encode()
        lines.append(_pad(_head(entry, checks[-1]) + body))
    return lines, checks


def _head(entry: LedgerEntry, check: str) -> bytes:
    """The beginning of a line, the part that changes: always of the same width."""
    return f'{{"steps": {entry.steps:12d}, "check": "{check}", '.encode()


def _pad(line: bytes) -> bytes:
    """Fills a line up with blanks to whole blocks, its end of line included."""
    return line.ljust(-(-(len(line) + 1) // _BLOCK) * _BLOCK - 1) + b"\n"


def _check(previous: str, entry: LedgerEntry) -> str:
    """Checksum of an entry and of everything before it."""
    content = json.dumps(entry.to_dict(), sort_keys=True)
    return hashlib.sha256(f"{previous}\n{content}".encode()).hexdigest()[:32]


def _header_check(segments: object) -> str:
    return hashlib.sha256(f"tfdp ledger {VERSION} {segments}".encode()).hexdigest()[:32]


def _parse(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        fields = json.loads(line, object_pairs_hook=_once)
    except ValueError as error:
        raise LedgerError(_damage(path, number)) from error
    if not isinstance(fields, dict):
        raise LedgerError(_damage(path, number))
    return fields


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A table of JSON; a key that comes twice would be read otherwise by others."""
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key comes twice")
    return table


def _damage(path: Path, number: int) -> str:
    return (
        f"line {number} of {path} was changed or damaged: its checksum does not fit. Epsilon "
        "cannot be told from it; restore the file, or the copy inside a checkpoint."
    )


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
