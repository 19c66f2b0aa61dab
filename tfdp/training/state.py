"""What a private model keeps beside what Keras keeps."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfdp.privacy import Ledger, PrivacyPlan
from tfdp.sampling import UserExamples

if TYPE_CHECKING:
    from tfdp.training.run import PrivateRun
    from tfdp.training.update import PrivateStep, Totals


@dataclasses.dataclass
class PrivateState:
    """Set by ``compile``.

    Attributes:
      loss: The compiled loss, one value per example.
      microbatch_size: Rows that one replica handles at a time; None for the default.
      engine: How examples are clipped.
      optimizer: The optimizer that was compiled.
      seed: Seed of all randomness, None for the operating system's entropy.
      stream: Name of this training's randomness, for the ledger. Where the seed is fixed, a run
        that goes on from a checkpoint goes on with the checkpoint's name.
      settings: Fingerprint of what makes a seeded step what it is.
      ledger: Where steps are entered.
      public_examples: Examples to look the model over on; None for made-up ones.
      plan: The plan in force, None until ``fit`` makes one.
      trainable: Identities of the trainable variables that the engine was made for.
      update: What runs a step, made by the first ``fit``.
      run: The run in progress.
      units: Whose the records are, where the plan protects persons.
      examples: Examples that took part in steps, counted with repetition.
      non_finite: How many of them were left out since their gradient was not finite.
      next_step: Number of the update after the last that this process made or restored.
      fitting: Held while ``fit`` runs.
    """

    loss: Any
    microbatch_size: int | None
    engine: str
    optimizer: Any
    seed: int | None
    stream: str
    settings: str
    ledger: Ledger
    public_examples: Any
    plan: PrivacyPlan | None
    trainable: list[int]
    update: PrivateStep | None = None
    run: PrivateRun | None = None
    units: UserExamples | None = None
    examples: Any = 0
    non_finite: Any = 0
    next_step: int = 0
    fitting: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def count(self, totals: Totals) -> None:
        """Adds a step's counts, without waiting for the device."""
        self.examples += tf.cast(totals.examples, tf.float64)
        self.non_finite += tf.cast(totals.non_finite, tf.float64)

    def set_counts(self, counts: dict[str, int]) -> None:
        """Goes on from what ``counts`` gave in another process."""
        self.examples = counts["examples_used"]
        self.non_finite = counts["non_finite_examples"]

    def counts(self) -> dict[str, int]:
        """Returns the counts as integers: exact facts about private data, for its holder."""
        found = {"examples_used": int(self.examples), "non_finite_examples": int(self.non_finite)}
        if self.units is not None:
            found["records_beyond_examples_per_user"] = self.units.records_left_out
        return found


def fingerprint(optimizer: Any, **compiled: Any) -> str:
    """Returns a name for the settings of a seeded run: equal names, equal steps.

    The ledger counts a step that is made again only once, and noise that comes again over
    another gradient would give it away. So a run may only go on under a checkpoint's name if all
    that its steps are computed from is the same; data, model and loss are the caller's to keep,
    and a learning rate that is assigned after ``compile``.

    Args:
      optimizer: The optimizer, which holds the plan.
      **compiled: What else ``compile`` was given or found. Engines draw dropout in ways of their
        own, and so do microbatches of another size, which by default depends on the devices. XLA,
        which ``run_eagerly`` turns off, rounds in its own way.
    """
    config = {k: v for k, v in optimizer.get_config().items() if k not in ("name", "ledger")}
    devices = sorted({device.device_type for device in tf.config.list_logical_devices()})
    text = json.dumps([config, devices, compiled], sort_keys=True, default=_plain)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _plain(value: Any) -> Any:
    """Returns a number of NumPy as the plain one that it equals, and the text of all else."""
    return value.item() if isinstance(value, np.generic) else repr(value)
