"""Callbacks of long private runs: progress, a log that survives restarts, a clean stop."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import keras
import tqdm


class ProgressBar(keras.callbacks.Callback):
    """One bar over all steps of the plan, with time left, loss and epsilon."""

    def __init__(self) -> None:
        super().__init__()
        self._bar: Any = None

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._bar = tqdm.tqdm(
            total=self.model.privacy.steps, initial=self.model.ledger.steps, unit="step"
        )

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        shown = {k: f"{float(v):.3f}" for k, v in (logs or {}).items() if k in ("loss", "epsilon")}
        self._bar.set_postfix(shown, refresh=False)
        self._bar.update(self.model.ledger.steps - self._bar.n)

    def on_train_end(self, logs: dict | None = None) -> None:
        self._bar.close()


class TrainingLog(keras.callbacks.Callback):
    """Appends one line of JSON per epoch: the number of steps so far, and the epoch's logs.

    Args:
      path: The file. A resumed run appends to it.
    """

    def __init__(self, path: str | os.PathLike):
        super().__init__()
        self._path = Path(path)

    def on_train_begin(self, logs: dict | None = None) -> None:
        if self._path.exists() and not self._path.read_bytes().endswith(b"\n"):
            with self._path.open("a", encoding="utf-8") as file:
                file.write("\n")  # after a line that a crash cut short

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        values = {name: float(value) for name, value in (logs or {}).items()}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": self.model.ledger.steps, **values}) + "\n")

    @staticmethod
    def read(path: str | os.PathLike) -> list[dict[str, Any]]:
        """Returns the lines written so far, without a line that a crash cut short."""
        lines = Path(path).read_text(encoding="utf-8").splitlines() if Path(path).exists() else []
        entries = []
        for line in lines:
            try:
                entries.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return entries


class StopOnTerm(keras.callbacks.Callback):
    """Ends training after the current step when the machine is about to be taken away.

    Clouds send SIGTERM before they stop a machine; Ctrl-C works the same way.

    Attributes:
      stopped: Whether a signal came.
    """

    _SIGNALS = (signal.SIGTERM, signal.SIGINT)

    def __init__(self) -> None:
        super().__init__()
        self.stopped = False
        self._before: dict[int, Any] = {}

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._before = {number: signal.signal(number, self._stop) for number in self._SIGNALS}

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        if self.stopped:
            self.model.stop_training = True

    def on_train_end(self, logs: dict | None = None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, *_: Any) -> None:
        self.stopped = True
