"""Checkpoints of a private run: weights, optimizer and ledger together."""

from __future__ import annotations

import json
import os
import tempfile
import time

import keras
import tensorflow as tf

from tfdp.privacy import Ledger
from tfdp.privacy.ledger import LedgerError
from tfdp.training.compiled import Compiled
from tfdp.training.strategies import is_first_worker


class CheckpointEvery(keras.callbacks.Callback):
    """Saves model, optimizer and ledger when training begins, regularly, and when it ends.

    Neither noise nor sampling is in a checkpoint: a resumed run draws both from fresh entropy,
    so nothing is replayed. After a crash the ledger is ahead of the weights, since a step is
    entered before its result can be seen; steps that were lost stay counted. Only a run with a
    fixed seed repeats them as the very same releases, which count once, provided that seed,
    optimizer, plan and microbatches are those of the checkpoint.

    Args:
      model: A compiled ``DPModel``; its weights exist.
      directory: Where the checkpoints go. If it holds some already, call ``restore()`` before
        ``fit``; otherwise ``fit`` raises an error.
      seconds: Time between two checkpoints.
      keep: Number of checkpoints kept.

    With several workers, all of them take part in saving, and the first one's checkpoint is
    kept. All of them must be able to read the directory.
    """

    def __init__(
        self, model: keras.Model, directory: str | os.PathLike, seconds: float = 60, keep: int = 2
    ):
        super().__init__()
        with model.distribute_strategy.scope():
            model.optimizer.build(model.trainable_variables)
        checkpoint = tf.train.Checkpoint(
            model=model, optimizer=model.optimizer, privacy=_Spending(model._private)
        )
        self._compiled: Compiled = model._private
        self._checkpoint = checkpoint
        self._directory = os.fspath(directory)
        kept = is_first_worker(model.distribute_strategy)
        target = self._directory if kept else tempfile.mkdtemp(prefix="tfdp_worker_")
        self._manager = tf.train.CheckpointManager(checkpoint, target, keep)
        self._seconds = seconds
        self._saved_at = time.monotonic()
        self._latest: int | None = None  # the step of the latest checkpoint
        self._waiting = tf.train.latest_checkpoint(self._directory) is not None
        self._optimizer = model.optimizer

    def restore(self) -> bool:
        """Loads the latest checkpoint; returns whether there was one.

        Raises:
          LedgerError: The model's ledger is a file that lacks steps which the checkpoint knows.
        """
        path = tf.train.latest_checkpoint(self._directory)
        if path is not None:
            self._checkpoint.restore(path)
            self._latest = int(self._optimizer.iterations.numpy())
            self._compiled.progress.next_step = self._latest
        self._waiting = False
        return path is not None

    def on_train_begin(self, logs: dict | None = None) -> None:
        if self._waiting:
            raise ValueError(
                f"{self._directory} holds checkpoints of an earlier run, with the ledger of what "
                "it spent: training from other weights would replace them. Call restore() before "
                "fit() to go on from there, or give another directory."
            )
        if self._latest is None:  # a crash before the next one must find the first weights
            self._save()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        if time.monotonic() - self._saved_at >= self._seconds:
            self._save()

    def on_train_end(self, logs: dict | None = None) -> None:
        self._save()

    def _save(self) -> None:
        number = int(self._optimizer.iterations.numpy())
        if number != self._latest:  # never over a checkpoint that may have to be read
            self._manager.save(checkpoint_number=number)
        self._latest, self._saved_at = number, time.monotonic()


class _Spending(tf.train.experimental.PythonState):
    """Ledger, stream and counts as part of a checkpoint. Restoring never takes an entry away."""

    def __init__(self, compiled: Compiled):
        self._compiled = compiled

    def serialize(self) -> str:
        compiled = self._compiled
        return json.dumps(
            {
                "ledger": compiled.ledger.to_dict(),
                "stream": compiled.progress.stream,
                "settings": compiled.fingerprint,
                "counts": compiled.progress.counts(),
            }
        )

    def deserialize(self, string_value: str) -> None:
        values, compiled = json.loads(string_value), self._compiled
        _check_no_step_is_lost(compiled.ledger, values["ledger"])
        compiled.ledger.merge(values["ledger"])
        compiled.progress.restore(values["counts"])
        # Other settings make other steps: under a name of their own, so that they are counted.
        if values["settings"] == compiled.fingerprint:
            compiled.progress.stream = values["stream"]


def _check_no_step_is_lost(ledger: Ledger, known: dict) -> None:
    """Raises if a ledger on disk, which is always ahead of checkpoints, has fallen behind one."""
    if ledger.path is None:
        return
    held = {entry.id: entry.steps for entry in ledger.entries}
    lost = sum(max(0, each["steps"] - held.get(each["id"], 0)) for each in known["segments"])
    if lost:
        raise LedgerError(
            f"{ledger.path} lacks {lost} steps that the checkpoint knows of: the file was "
            "removed or replaced, and with it what was spent after the checkpoint. Put it back. "
            "If it is lost for good, nobody can say what was spent on these weights: start again "
            "from new weights."
        )
