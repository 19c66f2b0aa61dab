"""Child processes that share their imports: forks of a server that has made them once.

Importing TensorFlow, Keras and tfdp takes longer than most of what children do. TensorFlow starts
nothing before its first use, so that a fork still chooses its own devices, threads and workers,
and is killed like any other process. A test of what importing does needs `child_output` instead.
"""

import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["tests.forks", "tfdp.training", "tfdp.evaluation", "tfdp.export"])


class Fork:
    """A process that runs a program as `python -c` would, in the repository root.

    Args:
        program: Python source.
        *args: its `sys.argv[1:]`.
        env: environment variables to add or replace. Those of the C library that TensorFlow's
            import reads come too late.
    """

    def __init__(self, program: str, *args: str, env: Mapping[str, str] | None = None):
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        folder = self._folder.name
        self._process = _SERVER.Process(target=_run, args=(folder, program, args, dict(env or {})))
        with mock.patch.dict(os.environ, PYTHONPATH=str(ROOT)):  # of the server, at its start
            self._process.start()

    def send_signal(self, number: int) -> None:
        """Sends a signal to the process."""
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def outcome(self, timeout: float = 300) -> tuple[int, str, str]:
        """Waits for the end: exit code, or minus the signal, and what was printed.

        A process that takes longer than `timeout` seconds is killed.
        """
        self._process.join(timeout)
        if self._process.exitcode is None:
            self.send_signal(signal.SIGKILL)
            self._process.join()
        out, err = ((Path(self._folder.name) / name).read_text() for name in ("out", "err"))
        self._folder.cleanup()
        assert self._process.exitcode is not None
        return self._process.exitcode, out, err


def _run(folder: str, program: str, args: tuple[str, ...], env: dict[str, str]) -> None:
    for number, name in ((1, "out"), (2, "err")):
        file = os.open(Path(folder) / name, os.O_WRONLY | os.O_CREAT)
        os.dup2(file, number)
    os.environ.update(env)
    os.chdir(ROOT)
    sys.argv = ["-c", *args]
    exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
