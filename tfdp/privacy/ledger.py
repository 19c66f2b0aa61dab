"""The ledger: every private step that was made, on the disk before its result can be seen."""

from __future__ import annotations

import dataclasses
import datetime
import os
import secrets
import threading
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tfdp import checks
from tfdp.files import FileLock, LockedError
from tfdp.privacy import _ledger_file
from tfdp.privacy._ledger_entry import LedgerEntry, LedgerError
from tfdp.privacy._ledger_file import LedgerFile
from tfdp.privacy.accounting import Guarantee
from tfdp.privacy.accounting import epsilon as account
from tfdp.privacy.settings import Segment, StepSettings, common_adjacency

FILE_NAME = "ledger.jsonl"
_FORMAT = "tfdp ledger"


# Who writes which file in this process.
_writers: weakref.WeakValueDictionary[Path, Ledger] = weakref.WeakValueDictionary()
_opening = threading.Lock()


class LedgerBusyError(LedgerError):
    """Another process is writing the ledger."""


class Ledger:
    """An append-only record of private steps, in memory or in a file.

    Call `record` before a step runs: when it returns the update is on the disk, so that a
    crash can make the ledger count one step too many but never one too few. Updates in a row
    under the same settings share a line; other settings begin a new one; nothing is ever taken
    back. Composing the lines is the accountants' business (`epsilon`).

    The file can be read by people (one line of JSON per segment), notices if it is changed or
    cut, and takes one writer at a time: other processes are refused, and within one process the
    latest object to open the file takes over from the one before. Each process writes segments
    of its own, so that copies of a ledger (in checkpoints, say) can be merged without counting
    too little.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        """Opens a ledger for writing, and creates it if need be.

        Args:
            path: the file (`*.jsonl`), or the folder of a `ledger.jsonl`. Left out, the ledger
                lives in memory only.

        Raises:
            LedgerBusyError: another process is writing it.
            LedgerError: the file was changed or damaged, or removed while an object of this
                process had it open.
            OSError: the file cannot be read or written.
        """
        self._mutex = threading.Lock()
        self._entries: list[LedgerEntry] = []
        self._own: str | None = None
        self._pid = os.getpid()
        self._taken_over = False
        self._file: LedgerFile | None = None
        self.path: Path | None = None
        if path is not None:
            self._open(_file_path(path))

    def _open(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _opening:
            file, lock = LedgerFile(path), _lock(path)
            self._finalizer = weakref.finalize(self, _release, file, lock)
            try:
                if path.exists():
                    self._entries = _ledger_file.read(path)
                file.write(self._entries)
            except BaseException:
                self._finalizer()
                raise
            self._file, self.path = file, path
            _writers[path] = self

    def _hand_over(self) -> FileLock | None:
        """Gives its lock to another object of this process, and records nothing from now on.

        All that it ever recorded is in the file by then. None if it has no lock to give.

        Raises:
            LedgerError: the file is not what it wrote, so that entries would be lost.
        """
        with self._mutex:
            if self._pid != os.getpid() or self._file is None or not self._finalizer.alive:
                return None
            try:
                self._file.check_untouched()
            except LedgerError as error:
                raise LedgerError(
                    f"{self.path} was removed, replaced or changed while another Ledger of this "
                    f"process, of {self.steps} steps, had it open: opening it would lose "
                    "them. Put the file back; to begin a new one, close() the other first."
                ) from error
            detached = self._finalizer.detach()
            assert detached is not None
            self._taken_over = True
            self._file.close()
            return detached[2][1]

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Ledger:
        """A copy in memory of a ledger on disk, also while another process writes it.

        Raises:
            FileNotFoundError: there is none.
            LedgerError: the file was changed or damaged.
        """
        ledger = cls()
        ledger._entries = _ledger_file.read(_file_path(path))
        return ledger

    def record(
        self, settings: StepSettings, *, stream: str | None = None, update: int | None = None
    ) -> None:
        """Records that one more update is about to be made.

        When it returns the update is on the disk (about a millisecond on a fast one).

        Args:
            settings: what the update does.
            stream: a name for the run's randomness, such as a fingerprint of its key.
            update: the update's number in that stream. Give both, or neither. Making a step
                again that the ledger holds under the same settings, stream and number costs
                nothing: a pure function of the same inputs releases nothing new. Only give
                them if sample and noise are such functions of stream and number.

        Raises:
            ValueError: the update cannot be composed with what is in the ledger, or only one of
                `stream` and `update` is given.
            LedgerError: the file was changed, or the ledger is closed.
        """
        if (stream is None) != (update is None):
            raise ValueError("stream and update go together: give both or neither.")
        number = 0 if update is None else checks.non_negative_int("update", update)
        with self._mutex:
            self._check_open()
            if stream is not None and any(
                entry.covers(settings, stream, number) for entry in self._entries
            ):
                return
            if not self._continue(settings, stream, number):
                self._begin(settings, stream, number)

    def _continue(self, settings: StepSettings, stream: str | None, number: int) -> bool:
        """Counts the update in the last segment if it belongs there."""
        last = self._entries[-1] if self._entries else None
        if last is None or last.id != self._own:
            return False
        if (last.settings, last.stream) != (settings, stream):
            return False
        if stream is not None and number != last.first + last.steps:
            return False
        last = dataclasses.replace(last, steps=last.steps + 1)
        if self._file:
            self._file.count(last)
        self._entries[-1] = last
        return True

    def _begin(self, settings: StepSettings, stream: str | None, number: int) -> None:
        """Opens a new segment with the update in it."""
        common_adjacency([*self.segments(), Segment(settings, 1)])
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        entry = LedgerEntry(secrets.token_hex(8), now, settings, 1, stream, number)
        self._replace([*self._entries, entry])
        self._own = entry.id

    def begin_segment(self) -> None:
        """Makes the next step begin a new segment, whatever its settings.

        Call it at the start of a pass over data that nobody samples ("none"): how often a record
        was used is counted per segment.
        """
        self._own = None

    @property
    def steps(self) -> int:
        """Number of steps in all segments."""
        return sum(entry.steps for entry in self._entries)

    def __len__(self) -> int:
        return self.steps

    def __bool__(self) -> bool:
        return True

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """The lines of the ledger, oldest first."""
        return tuple(self._entries)

    def segments(self) -> list[Segment]:
        """What the accountants need: the steps by settings.

        Sampled steps under equal settings are added up, whichever process made them. Passes
        that nobody sampled stay apart, because each begins anew.
        """
        steps: dict[tuple[StepSettings, str], int] = {}
        for entry in self._entries:
            sampled = entry.settings.sampling in ("poisson", "full_batch", "fixed_size")
            key = (entry.settings, "" if sampled else entry.id)
            steps[key] = steps.get(key, 0) + entry.steps
        return [Segment(settings, count) for (settings, _), count in steps.items()]

    def epsilon(self, delta: float, accountant: str = "auto") -> Guarantee:
        """The guarantee of everything recorded so far; see `tfdp.privacy.epsilon`."""
        return account(self.segments(), delta, accountant)

    def merge(self, other: Ledger | Mapping[str, Any]) -> None:
        """Takes in what another ledger knows, a checkpoint's copy for example.

        Segments that both know count once, with the larger of the two numbers; all others are
        added. Older and newer copies of one ledger thus merge into the newer, and histories of
        different runs add up: the result never counts too little.

        Raises:
            LedgerError: the two disagree on what a segment did.
            ValueError: the two cannot be composed.
        """
        if not isinstance(other, Ledger):
            other = Ledger.from_dict(other)
        with self._mutex:
            self._check_open()
            merged = _union(self._entries, other._entries)
            common_adjacency(Segment(entry.settings, entry.steps) for entry in merged)
            if merged != self._entries:
                self._replace(merged)
                self._own = None

    def to_dict(self) -> dict[str, Any]:
        """The ledger as plain JSON values, to be carried inside a checkpoint or a model."""
        return {
            "format": _FORMAT,
            "version": _ledger_file.VERSION,
            "segments": [entry.to_dict() for entry in self._entries],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Ledger:
        """A ledger in memory from `to_dict`; further steps go to segments of their own.

        Raises:
            LedgerError: the values do not describe a ledger.
        """
        ledger = cls()
        try:
            if (values["format"], values["version"]) != (_FORMAT, _ledger_file.VERSION):
                raise ValueError("unknown format or version")
            ledger._entries = [LedgerEntry.from_dict(entry) for entry in values["segments"]]
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerError(f"this is not a ledger: {error}.") from error
        return ledger

    def close(self) -> None:
        """Lets the file go, so that another process may write it; harmless if done before."""
        if self.path is not None:
            self._finalizer()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = self.path or "in memory"
        return f"<Ledger {where}: {self.steps} steps in {len(self._entries)} segments>"

    def _replace(self, entries: list[LedgerEntry]) -> None:
        if self._file:
            self._file.write(entries)
        self._entries = entries

    def _check_open(self) -> None:
        if self._pid != os.getpid():
            raise LedgerError(
                f"the ledger is that of process {self._pid}, and this is {os.getpid()}, forked "
                "from it: what it records, the other would not know. Train in the process that "
                "made the ledger, or with Ledger.from_dict(ledger.to_dict()), and compose both."
            )
        if self._taken_over:
            raise LedgerError(
                f"another Ledger of this process was opened on {self.path} and has taken it over: "
                "record there. (A model compiled with this one is compiled again with the new "
                "one; nothing was lost.)"
            )
        if self.path is not None and not self._finalizer.alive:
            raise LedgerError(f"the ledger {self.path} is closed; open it again to record.")


def _file_path(path: str | os.PathLike[str]) -> Path:
    path = Path(path) if Path(path).suffix == ".jsonl" else Path(path) / FILE_NAME
    # Neither a later change of folder nor a link, which renaming would replace, moves the ledger.
    return path.resolve()


def _lock(path: Path) -> FileLock:
    """The lock of a ledger's file, taken over where this very process holds it.

    Raises:
        LedgerBusyError: another process holds it.
    """
    try:
        return FileLock(path.with_name(path.name + ".lock"))
    except LockedError as error:
        before = _writers.get(path)
        lock = None if before is None else before._hand_over()
        if lock is not None:
            return lock
        raise LedgerBusyError(
            f"{path} is being written by {error}; wait for it to end, or use another folder."
        ) from None


def _release(file: LedgerFile, lock: FileLock) -> None:
    file.close()
    lock.release()


def _union(ours: Iterable[LedgerEntry], theirs: Iterable[LedgerEntry]) -> list[LedgerEntry]:
    merged = {entry.id: entry for entry in ours}
    for entry in theirs:
        known = merged.setdefault(entry.id, entry)
        if dataclasses.replace(known, steps=entry.steps) != entry:
            raise LedgerError(f"the ledgers disagree on segment {entry.id}.")
        if entry.steps > known.steps:
            merged[entry.id] = entry
    return list(merged.values())
