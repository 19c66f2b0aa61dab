"""One writer at a time for a file, across processes and within one."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
from pathlib import Path


class LockedError(RuntimeError):
    """Another holds the lock; the message names it as far as it is known."""


_held: dict[Path, int] = {}  # by which process: a fork copies this, but not the locks
_held_guard = threading.Lock()


class FileLock:
    """An exclusive lock on a path, taken at construction.

    The operating system drops it when the process ends, however it ends, so that a lock file
    left behind by a dead process locks nobody out. Children of a fork do not inherit it.
    """

    def __init__(self, path: Path) -> None:
        """Takes the lock.

        Raises:
            LockedError: Another process, or another object in this one, holds it.
        """
        self._path = path.resolve()
        self._descriptor: int | None = None
        with _held_guard:
            # A process may lock the same file twice, and loses both locks when it closes either.
            if _held.get(self._path) == os.getpid():
                raise LockedError(f"this process (pid {os.getpid()})")
            self._descriptor = self._acquire()
            _held[self._path] = os.getpid()

    def _acquire(self) -> int:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(descriptor, 200).decode(errors="replace").strip()
            os.close(descriptor)
            raise LockedError(holder or "another process") from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        return descriptor

    def release(self) -> None:
        """Gives the lock back; harmless if that was done before."""
        with _held_guard:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None
                _held.pop(self._path, None)
