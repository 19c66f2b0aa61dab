"""A training that is killed over and over; run in a process of its own by test_killed.

Imports TensorFlow once and forks a child for each life, which is killed at the given boundary:
before or after a write to the disk, a flush, a checkpoint or a release. Prints the facts as JSON.
"""

import functools
import hashlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.lib.io import file_io

import tfdp
from tests.training.models import classifier, compiled, separable
from tfdp.privacy import Ledger
from tfdp.training import CheckpointEvery
from tfdp.training.step import PrivateStep

STEPS = 24
SAVED_EVERY = 3  # steps; those since the last checkpoint are lost by a kill


class Boundaries:
    """Counts passages of the boundaries from the first step on, and dies at one of them."""

    def __init__(self, folder: Path, die_at: int | None):
        self._folder, self._die_at, self._passed = folder, die_at, 0
        for name in ("pwrite", "fdatasync", "fsync", "replace"):
            self.guard(os, name)
        self.guard(file_io, "atomic_write_string_to_file")  # names the latest checkpoint
        self.guard(tf.train.CheckpointManager, "save")
        self.guard(PrivateStep, "__call__", "step")

    def guard(self, owner, name: str, shown: str | None = None) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def guarded(*args, **kwargs):
            self._pass(f"before {shown or name}")
            result = original(*args, **kwargs)
            self._pass(f"after {shown or name}")
            return result

        setattr(owner, name, guarded)

    def _pass(self, where: str) -> None:
        self._passed += 1
        if self._passed == self._die_at:
            log(self._folder / "deaths", where)
            os.kill(os.getpid(), signal.SIGKILL)


def log(path: Path, line: str) -> None:
    """Appends a line that survives the writer."""
    with path.open("a") as file:
        file.write(line + "\n")


class SaveNowAndThen(keras.callbacks.Callback):
    def __init__(self, saver):
        super().__init__()
        self._saver = saver

    def on_train_batch_end(self, batch, logs=None):
        if self.model.optimizer.iterations.numpy() % SAVED_EVERY == 0:
            self._saver._save()


def watch_releases(folder: Path) -> None:
    """Writes down of every release which step it is, with which noise, over which examples."""
    call = PrivateStep.__call__

    def watched(self, microbatches, count, noise, before_release):
        number = int(self._model.optimizer.iterations.numpy())
        drawn = microbatches._sampler.indices(number)

        def entered():
            before_release()
            # From here on the result may be seen by whoever kills the process.
            log(folder / "released", f"{number} {digest(noise)} {digest(drawn)}")

        return call(self, microbatches, count, noise, before_release=entered)

    PrivateStep.__call__ = watched


def digest(array) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def life(folder: Path, seed: int | None, die_at: int | None) -> None:
    """Goes on from what the folder holds until the plan is used up, or until death."""
    watch_releases(folder)
    Boundaries(folder, die_at)
    plan = tfdp.PrivacyPlan(500, 50, STEPS, 1.0, noise_multiplier=1.0, delta=1e-5, accountant="rdp")
    with Ledger(folder / "ledger.jsonl") as ledger:
        optimizer = tfdp.optimizers.DPAdam(0.1, privacy=plan)
        model = compiled(classifier(), plan, optimizer, seed=seed, ledger=ledger, jit_compile=False)
        saver = CheckpointEvery(model, folder / "checkpoints", seconds=1e9)
        released = len(lines(folder / "released"))
        log(folder / "lives", f"{released} {ledger.steps} {saver.restore()}")
        if model.steps_left:
            model.fit(*separable(), verbose=0, callbacks=[SaveNowAndThen(saver), saver])
        np.savez(folder / "weights.npz", *model.get_weights())


def give_birth(folder: Path, seed: int | None, death: int | float | None) -> int:
    """One life in a child; returns its status: minus the signal that killed it, or 0.

    It dies at the boundary of that number, or so many seconds after the parent sees that it has
    made a step, or not at all.
    """
    released = len(lines(folder / "released"))
    child = os.fork()
    if child == 0:
        try:
            life(folder, seed, death if isinstance(death, int) else None)
        except BaseException as error:
            log(folder / "errors", repr(error))
            os._exit(1)
        os._exit(0)
    if isinstance(death, float):
        while len(lines(folder / "released")) == released:
            time.sleep(0.001)
        time.sleep(death)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run(folder: Path, seed: int | None, deaths: list[int | float]) -> None:
    folder.mkdir()
    statuses = [give_birth(folder, seed, death) for death in (*deaths, None)]
    ledger = Ledger.read(folder / "ledger.jsonl")
    facts = {
        "statuses": statuses,
        "deaths": lines(folder / "deaths"),
        "released": [line.split() for line in lines(folder / "released")],
        "lives": [line.split() for line in lines(folder / "lives")],
        "errors": lines(folder / "errors"),
        "ledger": ledger.steps,
        "weights": [v.tolist() for v in np.load(folder / "weights.npz").values()],
    }
    print(json.dumps({folder.name: facts}))


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


if __name__ == "__main__":
    assert not context.context()._initialized, "TensorFlow runs already, and cannot be forked"
    where, rng = Path(sys.argv[1]), random.Random(int(sys.argv[2]))
    moments = [rng.uniform(0, 0.03) for _ in range(3)]
    deaths = [*rng.sample(range(1, 37), 12), *moments]
    rng.shuffle(deaths)
    run(where / "whole", 3, [])
    run(where / "seeded", 3, deaths)
    run(where / "entropy", None, [*rng.sample(range(15, 37), 3), moments[0]])
