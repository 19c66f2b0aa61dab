"""What ``compile`` fixes for private training, and the progress of the training since."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import secrets
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.optimizers import PrivateOptimizer
from tfdp.privacy import Ledger, PrivacyPlan
from tfdp.privacy.spenders import spending_elsewhere


@dataclasses.dataclass
class Progress:
    """What changes with every step, beside the Keras variables and the ledger.

    Attributes:
      stream: Name of this training's randomness, for the ledger. Where the seed is fixed, a run
        that goes on from a checkpoint goes on with the checkpoint's name.
      next_step: Number of the step after the last one that this process made or restored.
      examples: Examples that took part in steps, counted with repetition.
      non_finite: Examples that were skipped because their gradient was not finite.
      of_data: Counts that the data of the latest ``fit`` brought along.
    """

    stream: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))
    next_step: int = 0
    examples: Any = 0
    non_finite: Any = 0
    of_data: dict[str, int] = dataclasses.field(default_factory=dict)

    def add(self, examples: tf.Tensor, non_finite: tf.Tensor) -> None:
        """Adds the counts of a step, without waiting for the device."""
        self.examples += tf.cast(examples, tf.float64)
        self.non_finite += tf.cast(non_finite, tf.float64)

    def counts(self) -> dict[str, int]:
        """Returns the counts as integers: exact facts about private data, for its holder."""
        found = {"examples_used": int(self.examples), "non_finite_examples": int(self.non_finite)}
        return {**found, **self.of_data}

    def restore(self, counts: dict[str, int]) -> None:
        """Goes on from what ``counts`` gave in another process."""
        self.examples = counts["examples_used"]
        self.non_finite = counts["non_finite_examples"]


@dataclasses.dataclass(frozen=True, eq=False)
class Compiled:
    """Everything that ``compile`` fixes.

    Attributes:
      optimizer: The private optimizer.
      loss: The loss, with one value per example.
      ledger: Where steps are entered.
      seed: Seed of all randomness, None for the operating system's entropy.
      engine: How examples are clipped.
      microbatch_size: Examples that one replica handles at a time; None for the default.
      public_examples: Examples for the model check; None for synthetic inputs.
      trainable: Identities of the variables that were trainable; none if there were no variables
        yet.
      fingerprint: Name of the settings that make a seeded step what it is.
      progress: What has changed in training since.
    """

    optimizer: PrivateOptimizer
    loss: Callable
    ledger: Ledger
    seed: int | None
    engine: str
    microbatch_size: int | None
    public_examples: Any
    trainable: tuple[int, ...]
    fingerprint: str
    progress: Progress = dataclasses.field(default_factory=Progress)
    _fitting: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    @property
    def in_training(self) -> bool:
        """Whether a call of ``fit`` is under way."""
        return self._fitting.locked()

    def steps_left(self, plan: PrivacyPlan) -> int:
        """Returns how many steps a plan still allows."""
        # Steps that a crash took from a seeded run are made again for nothing.
        stream = self.progress.stream
        entered = [e.first + e.steps for e in self.ledger.entries if e.stream == stream]
        repeats = max(0, max(entered, default=0) - int(self.optimizer.iterations.numpy()))
        if self.optimizer.privacy is None:  # no budget: every fit may spend what it asks for
            return repeats + max(0, plan.steps - self.ledger.steps)
        return repeats + plan.affordable_steps(self.ledger.segments())

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Rejects a call of ``fit`` inside another, or beside it in another thread.

        Both would make the same steps, and enter them in each other's place.
        """
        if not self._fitting.acquire(blocking=False):
            raise ValueError(
                "fit: this model is already training, in a fit() that contains this call or in "
                "another thread. Wait until it ends."
            )
        try:
            yield
        finally:
            self._fitting.release()

    @contextlib.contextmanager
    def own_ledger(self) -> Iterator[None]:
        """Gives the optimizer this ledger, which another model's compile may have replaced."""
        there, self.optimizer.ledger = self.optimizer.ledger, self.ledger
        try:
            yield
        finally:
            self.optimizer.ledger = there


def fingerprint(optimizer: PrivateOptimizer, **compiled: Any) -> str:
    """Returns a name for the settings of a seeded run: equal names, equal steps.

    The ledger counts a step that is made again only once, and noise that comes again over
    another gradient would give it away. So a run may only go on under a checkpoint's name if all
    that its steps are computed from is the same. Data, model and loss are left to the caller, and
    so is a learning rate that is assigned after ``compile``.

    Args:
      optimizer: The optimizer, which holds the plan.
      **compiled: What else ``compile`` was given or found. Engines draw dropout each in their own
        way, and so do microbatches of another size, which by default depends on the devices. XLA,
        which ``run_eagerly`` turns off, rounds differently.
    """
    config = {k: v for k, v in optimizer.get_config().items() if k not in ("name", "ledger")}
    devices = sorted({device.device_type for device in tf.config.list_logical_devices()})
    text = json.dumps([config, devices, compiled], sort_keys=True, default=_plain)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def with_earlier_spending(model: keras.Model, ledger: Ledger | None) -> Ledger:
    """Returns the ledger, or the model's own, with all that was spent on its weights before."""
    earlier = []
    for layer in model._flatten_layers():  # the model itself, and private models inside it
        optimizer = getattr(layer, "optimizer", None)
        if isinstance(optimizer, PrivateOptimizer) and optimizer.ledger is not None:
            earlier.append(optimizer.ledger)
    if ledger is None:
        ledger = earlier.pop(0) if earlier else Ledger()
    for other in earlier:
        if other is not ledger:
            ledger.merge(other)
    for _, content in list(spending_elsewhere(model.variables, ledger)):  # models that share
        ledger.merge(content)
    return ledger


def _plain(value: Any) -> Any:
    """Returns a number of NumPy as the plain one that it equals, and the text of all else."""
    return value.item() if isinstance(value, np.generic) else repr(value)
