"""The ledger: every private step that was taken, on disk before its result can be seen."""

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
from tfdp.privacy import ledger_file
from tfdp.privacy.accounting import Guarantee
from tfdp.privacy.accounting import epsilon as account
from tfdp.privacy.ledger_file import LedgerEntry, LedgerError, LedgerFile
from tfdp.privacy.settings import Segment, StepSettings, common_adjacency

FILE_NAME = "ledger.jsonl"
_FORMAT = "tfdp ledger"

# Who writes which file in this process.
_writers: weakref.WeakValueDictionary[Path, Ledger] = weakref.WeakValueDictionary()
_opening = threading.Lock()


class LedgerBusyError(LedgerError):
    """Another process is writing the ledger."""


class Ledger:
    """An append-only list of private steps, in memory or in a file.

    Call `record` before a step runs. When it returns, the step is on the disk: a crash can make
    the ledger count one step too many, but never one too few. Consecutive steps under the same
    settings form a segment; nothing is ever taken back. The accountants compose the segments
    (`epsilon`).

    The file is JSON, one line for each step. Changes and cuts are noticed when it is read. It has
    one writer at a time: other processes get an error, and within one process the latest object
    to open the file takes over from the one before. Each process writes segments of its own, so
    copies of a ledger (in checkpoints, for example) can be merged without counting too little.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        """Opens a ledger for writing, and creates it if need be.

        Args:
            path: The file (`*.jsonl`), or the folder of a `ledger.jsonl`. If None, the ledger
                lives in memory only.

        Raises:
            LedgerBusyError: Another process is writing it.
            LedgerError: The file was changed or damaged, or removed while an object of this
                process had it open.
            OSError: The file cannot be read or written.
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
            lock = _lock(path)
            try:
                file = LedgerFile(path)
            except BaseException:
                lock.release()
                raise
            self._finalizer = weakref.finalize(self, _release, file, lock)
            self._entries, self._file, self.path = file.entries, file, path
            _writers[path] = self

    def _hand_over(self) -> FileLock | None:
        """Gives its lock to another object of this process, and records nothing from now on.

        Everything that it recorded is in the file by then. Returns None if it has no lock.

        Raises:
            LedgerError: The file is not what it wrote, so entries would be lost.
        """
        with self._mutex:
            if self._pid != os.getpid() or self._file is None or not self._finalizer.alive:
                return None
            try:
                self._file.check_untouched()
            except LedgerError as error:
                raise LedgerError(
                    f"{self.path} was removed, replaced or changed while another Ledger of this "
                    f"process had it open. Opening it would lose {self.steps} steps: put the file "
                    "back, or call close() on the other Ledger to begin a new file."
                ) from error
            detached = self._finalizer.detach()
            if detached is None:
                return None
            file, lock = detached[2]
            file.close()
            self._taken_over = True
            return lock

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Ledger:
        """Returns a copy in memory of a ledger on disk; another process may be writing it.

        Raises:
            FileNotFoundError: There is none.
            LedgerError: The file was changed or damaged.
        """
        ledger = cls()
        ledger._entries = ledger_file.read(_file_path(path))
        return ledger

    def record(
        self, settings: StepSettings, *, stream: str | None = None, step: int | None = None
    ) -> None:
        """Records that one more step is about to be made.

        When it returns, the step is on the disk (a fraction of a millisecond on a fast one).

        Args:
            settings: What the step does.
            stream: A name for the run's randomness, such as a fingerprint of its key.
            step: The step's number in that stream. Give both, or neither. Repeating a step
                that the ledger holds under the same settings, stream and number spends nothing: a
                pure function of the same inputs releases nothing new. Only give them if sampling
                and noise are such functions of stream and number.

        Raises:
            ValueError: The step cannot be composed with what is in the ledger, or only one of
                `stream` and `step` is given.
            LedgerError: The file was changed, or the ledger is closed.
        """
        if (stream is None) != (step is None):
            raise ValueError("stream and step go together: give both or neither.")
        number = 0 if step is None else checks.non_negative_int("step", step)
        with self._mutex:
            self._check_open()
            if stream is not None and any(
                entry.covers(settings, stream, number) for entry in self._entries
            ):
                return
            if not self._continue(settings, stream, number):
                self._begin(settings, stream, number)

    def _continue(self, settings: StepSettings, stream: str | None, number: int) -> bool:
        """Counts the step in the last segment if it belongs there."""
        last = self._entries[-1] if self._entries else None
        if last is None or last.id != self._own:
            return False
        if (last.settings, last.stream) != (settings, stream):
            return False
        if stream is not None and number != last.first + last.steps:
            return False
        if self._file:
            self._file.count(last.steps + 1)
        self._entries[-1] = dataclasses.replace(last, steps=last.steps + 1)
        return True

    def _begin(self, settings: StepSettings, stream: str | None, number: int) -> None:
        """Opens a new segment with the step in it."""
        common_adjacency([*self.segments(), Segment(settings, 1)])
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        entry = LedgerEntry(secrets.token_hex(8), now, settings, 1, stream, number)
        self._own = None  # should this be interrupted, no count may go to the wrong segment
        if self._file:
            self._file.begin(entry)
        self._entries = [*self._entries, entry]
        self._own = entry.id

    def begin_segment(self) -> None:
        """Makes the next step begin a new segment, whatever its settings.

        Call it at the start of a pass over data that is not sampled ("none"): how often an example
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
        """The segments of the ledger, oldest first."""
        return tuple(self._entries)

    def segments(self) -> list[Segment]:
        """Returns what the accountants need: the steps by settings.

        Sampled steps under equal settings are added up, whichever process made them. Passes
        without sampling stay apart, because each begins anew.
        """
        steps: dict[tuple[StepSettings, str], int] = {}
        for entry in self._entries:
            sampled = entry.settings.sampling in ("poisson", "full_batch", "fixed_size")
            key = (entry.settings, "" if sampled else entry.id)
            steps[key] = steps.get(key, 0) + entry.steps
        return [Segment(settings, count) for (settings, _), count in steps.items()]

    def epsilon(self, delta: float, accountant: str = "auto") -> Guarantee:
        """Returns the guarantee of everything recorded so far; see `tfdp.privacy.epsilon`."""
        return account(self.segments(), delta, accountant)

    def merge(self, other: Ledger | Mapping[str, Any]) -> None:
        """Adds what another ledger knows, a checkpoint's copy for example.

        Segments that both know count once, with the larger of the two numbers; all others are
        added. Older and newer copies of one ledger thus merge into the newer, and histories of
        different runs add up: the result never counts too little.

        Raises:
            LedgerError: The two disagree on what a segment did.
            ValueError: The two cannot be composed.
        """
        if not isinstance(other, Ledger):
            other = Ledger.from_dict(other)
        with self._mutex:
            self._check_open()
            merged = _union(self._entries, other._entries)
            common_adjacency(Segment(entry.settings, entry.steps) for entry in merged)
            news = [entry for entry in merged if entry not in self._entries]
            if news:
                self._own = None
                if self._file:
                    self._file.merge(news)
                self._entries = merged

    def to_dict(self) -> dict[str, Any]:
        """Returns the ledger as plain JSON values, to be kept inside a checkpoint or a model."""
        return {
            "format": _FORMAT,
            "version": ledger_file.VERSION,
            "segments": [entry.to_dict() for entry in self._entries],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Ledger:
        """Returns a ledger in memory from `to_dict`; further steps go to segments of their own.

        Raises:
            LedgerError: The values do not describe a ledger.
        """
        ledger = cls()
        try:
            if (values["format"], values["version"]) != (_FORMAT, ledger_file.VERSION):
                raise ValueError("unknown format or version")
            ledger._entries = [LedgerEntry.from_dict(entry) for entry in values["segments"]]
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerError(f"this is not a ledger: {error}.") from error
        return ledger

    def close(self) -> None:
        """Closes the file, so that another process may write it; harmless if done before."""
        if self.path is not None:
            self._finalizer()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = self.path or "in memory"
        return f"<Ledger {where}: {self.steps} steps in {len(self._entries)} segments>"

    def _check_open(self) -> None:
        if self._pid != os.getpid():
            raise LedgerError(
                f"the ledger belongs to process {self._pid}, and this is process {os.getpid()}, "
                "forked from it: the other process would not know of steps recorded here. Train in "
                "the process that opened the ledger; or record in "
                "Ledger.from_dict(ledger.to_dict()), and compose both."
            )
        if self._taken_over:
            raise LedgerError(
                f"another Ledger of this process was opened on {self.path} and has taken it over. "
                "Record there: compile the model again with the new Ledger. Nothing was lost."
            )
        if self.path is not None and not self._finalizer.alive:
            raise LedgerError(f"the ledger {self.path} is closed; open it again to record.")


def _file_path(path: str | os.PathLike[str]) -> Path:
    path = Path(path) if Path(path).suffix == ".jsonl" else Path(path) / FILE_NAME
    # Neither a later change of folder nor a link, which renaming would replace, moves the ledger.
    return path.resolve()


def _lock(path: Path) -> FileLock:
    """Returns the lock of a ledger's file, taken over where this very process holds it.

    Raises:
        LedgerBusyError: Another process holds it.
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
