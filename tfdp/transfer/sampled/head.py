"""A head of features that learns from Poisson-sampled batches: what batch size does (P1)."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import numpy as np

from tfdp import checks, optimizers
from tfdp.data import ArraySource, ExampleSource
from tfdp.optimizers import PrivateOptimizer
from tfdp.privacy import PrivacyPlan
from tfdp.transfer.normalise import check_normalisation, normalised
from tfdp.transfer.passes import RESIDENT_BYTES
from tfdp.transfer.rows import Rows

_OPTIMIZERS: dict[str, type[PrivateOptimizer]] = {
    "sgd": optimizers.DPSGD,
    "momentum": optimizers.DPSGD,
    "adam": optimizers.DPAdam,
    "lamb": optimizers.DPLAMB,
}
#: Name of the head's layer.
HEAD = "logits"


@dataclasses.dataclass(frozen=True)
class SampledHead:
    """Settings of a head trained by `fit` of a private model.

    A batch as large as the data is the full batch: every row in every step.

    Attributes:
        batch_size: expected rows in a step, B.
        epochs: expected uses of a row; there are max(1, round(epochs * N / B)) steps.
        clip_norm: C, bound on one example's gradient over all trained weights jointly.
        optimizer: "sgd", "momentum", "adam" or "lamb".
        learning_rate: of the optimizer, at the start.
        rate_schedule: "constant", or "cosine" down to zero over the steps. LAMB needs the
            latter: it moves every weight by a part of its own length to the last, noise or not.
        momentum: for "momentum".
        init: standard deviation of the head's random first weights; 0 starts from exact zeros.
        normalise: what is done to feature rows; see `normalised`.
        microbatch_size: rows at a time; bounds memory and changes nothing else. None takes as many
            as are expected to take least time, within about 1 GiB.
    """

    batch_size: int = 4096
    epochs: float = 10.0
    clip_norm: float = 1.0
    optimizer: str = "lamb"
    learning_rate: float = 0.1
    rate_schedule: str = "constant"
    momentum: float = 0.9
    init: float = 0.0
    normalise: str = "unit"
    microbatch_size: int | None = 2048

    def __post_init__(self) -> None:
        check_normalisation(self.normalise)
        checks.one_of("optimizer", self.optimizer, tuple(_OPTIMIZERS))
        checks.one_of("rate_schedule", self.rate_schedule, ("constant", "cosine"))
        checks.positive_int("batch_size", self.batch_size)
        for name in ("epochs", "clip_norm", "learning_rate"):
            checks.positive(name, getattr(self, name))
        checks.below_one("momentum", self.momentum)
        checks.not_negative("init", self.init)
        if self.microbatch_size is not None:
            checks.positive_int("microbatch_size", self.microbatch_size)

    def schedule(self, num_examples: int) -> dict[str, Any]:
        """What a `PrivacyPlan` needs to know of these settings."""
        batch = min(self.batch_size, num_examples)
        return {
            "batch_size": batch,
            "steps": max(1, round(self.epochs * num_examples / batch)),
            "clip_norm": self.clip_norm,
            "sampling": "full_batch" if batch == num_examples else "poisson",
        }

    def make_optimizer(self, plan: PrivacyPlan) -> PrivateOptimizer:
        """The optimizer, for this plan."""
        more: dict[str, Any] = {"momentum": self.momentum} if self.optimizer == "momentum" else {}
        first, factors = self._rates()
        rate: Any = first
        if self.rate_schedule == "cosine":
            rate = keras.optimizers.schedules.CosineDecay(first, plan.steps)
        return _OPTIMIZERS[self.optimizer](rate, privacy=plan, rate_factors=factors, **more)

    def _rates(self) -> tuple[float, dict[str, float]]:
        """The optimizer's learning rate, and its factors by parts of variable paths."""
        return self.learning_rate, {}

    def output_layer(self, num_classes: int, seed: int | None) -> keras.layers.Dense:
        """The head itself; its bias starts at zero."""
        own = None if seed is None else seed % 2**31  # what Keras takes for a seed
        first = keras.initializers.RandomNormal(stddev=self.init, seed=own)
        kernel = first if self.init else "zeros"
        return keras.layers.Dense(num_classes, kernel_initializer=kernel, name=HEAD)

    def model(self, rows: Any, num_classes: int, seed: int | None) -> keras.Model:
        """A model of normalised rows `[B, D]` that gives logits `[B, K]`."""
        return keras.Sequential([keras.Input((rows.dim,)), self.output_layer(num_classes, seed)])

    def source(self, rows: Any) -> ExampleSource:
        """The rows as records to sample from; those that are not finite weigh nothing.

        Raises:
            TypeError, ValueError: as `check_rows`.
        """
        self.check_rows(rows)
        # Kept with the rows: TensorFlow lets go of nothing that a pipeline in Python has read.
        if self.normalise not in rows.tables:
            rows.tables[self.normalise] = _table(rows, self.normalise)
        return ArraySource(
            rows.tables[self.normalise],
            np.maximum(rows.labels, 0),
            (rows.labels >= 0).astype(np.float32),
        )

    def check_rows(self, rows: Any) -> None:
        """Refuses what cannot be sampled from.

        Raises:
            TypeError: these are pictures.
            ValueError: the features are more than is kept in memory.
        """
        if not isinstance(rows, Rows):
            raise TypeError("a sampled head learns from feature rows; pictures need 'fine_tune'.")
        if 4 * len(rows) * rows.dim > RESIDENT_BYTES:
            raise ValueError(
                f"{len(rows):,} x {rows.dim} features are more than sampled training keeps in "
                "memory; the full-batch methods stream any number of them from disk."
            )


def _table(rows: Rows, normalise: str) -> np.ndarray:
    """All normalised rows, float32 `[N, D]`."""
    features = np.empty((len(rows), rows.dim), np.float32)
    for block in rows.blocks():
        made = normalised(block.features, normalise)
        features[block.start : block.start + len(made)] = made
    return features
