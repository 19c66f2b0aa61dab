"""A head of features that learns from Poisson-sampled batches, and the fit of any such model."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp import checks
from tfdp.data import ArraySource, ExampleSource
from tfdp.optimizers import PrivateOptimizer
from tfdp.privacy import PrivacyPlan, PrivacyReport
from tfdp.training import make_private
from tfdp.transfer.classifier_export import export_classifier, export_head
from tfdp.transfer.feature_table import FeatureTable
from tfdp.transfer.linear_head import NORMALIZATIONS, normalized
from tfdp.transfer.methods.full_batch_steps import OPTIMIZERS
from tfdp.transfer.passes import RESIDENT_BYTES
from tfdp.transfer.release_budget import seed_for

#: Name of the head's layer.
HEAD = "logits"


@dataclasses.dataclass(frozen=True)
class SampledHead:
    """Settings of a head of features that a private model's `fit` trains on Poisson batches.

    A batch as large as the data is the full batch: every example in every step.

    Attributes:
        batch_size: Expected batch size B.
        epochs: Expected uses of an example; there are max(1, round(epochs * N / B)) steps.
        clip_norm: C, the largest norm of one example's gradient over all trained weights jointly.
        optimizer: "sgd", "momentum", "adam" or "lamb".
        learning_rate: Of the optimizer, at the start.
        rate_schedule: "constant", or "cosine" down to zero over the steps. LAMB needs the
            latter: its last step still moves every weight by a part of its length, noise or not.
        momentum: For "momentum".
        init: Standard deviation of the head's random first weights; 0 starts from exact zeros.
        normalize: What is done to features first; see `normalized`.
        microbatch_size: Examples at a time; limits memory and changes nothing else. None takes as
            many as are expected to take least time, within about 1 GiB.
    """

    batch_size: int = 4096
    epochs: float = 10.0
    clip_norm: float = 1.0
    optimizer: str = "lamb"
    learning_rate: float = 0.1
    rate_schedule: str = "constant"
    momentum: float = 0.9
    init: float = 0.0
    normalize: str = "unit"
    microbatch_size: int | None = 2048

    def __post_init__(self) -> None:
        checks.one_of("normalize", self.normalize, NORMALIZATIONS)
        checks.one_of("optimizer", self.optimizer, tuple(OPTIMIZERS))
        checks.one_of("rate_schedule", self.rate_schedule, ("constant", "cosine"))
        checks.positive_int("batch_size", self.batch_size)
        for name in ("epochs", "clip_norm", "learning_rate"):
            checks.positive(name, getattr(self, name))
        checks.below_one("momentum", self.momentum)
        checks.not_negative("init", self.init)
        if self.microbatch_size is not None:
            checks.positive_int("microbatch_size", self.microbatch_size)

    def schedule(self, num_examples: int) -> dict[str, Any]:
        """Returns what a `PrivacyPlan` needs to know of these settings."""
        batch = min(self.batch_size, num_examples)
        return {
            "batch_size": batch,
            "steps": max(1, round(self.epochs * num_examples / batch)),
            "clip_norm": self.clip_norm,
            "sampling": "full_batch" if batch == num_examples else "poisson",
        }

    def make_optimizer(self, plan: PrivacyPlan) -> PrivateOptimizer:
        """Returns the optimizer for this plan."""
        more: dict[str, Any] = {"momentum": self.momentum} if self.optimizer == "momentum" else {}
        first, factors = self._rates()
        rate: Any = first
        if self.rate_schedule == "cosine":
            rate = keras.optimizers.schedules.CosineDecay(first, plan.steps)
        return OPTIMIZERS[self.optimizer](rate, privacy=plan, rate_factors=factors, **more)

    def _rates(self) -> tuple[float, dict[str, float]]:
        """Returns the optimizer's learning rate, and its factors by parts of variable paths."""
        return self.learning_rate, {}

    def output_layer(self, num_classes: int, seed: int | None) -> keras.layers.Dense:
        """Returns the head itself; its bias starts at zero."""
        own = None if seed is None else seed % 2**31  # the range that Keras accepts
        first = keras.initializers.RandomNormal(stddev=self.init, seed=own)
        kernel = first if self.init else "zeros"
        return keras.layers.Dense(num_classes, kernel_initializer=kernel, name=HEAD)

    def model(self, data: Any, num_classes: int, seed: int | None) -> keras.Model:
        """Returns a model of normalized features `[B, D]` that gives logits `[B, K]`."""
        return keras.Sequential([keras.Input((data.dim,)), self.output_layer(num_classes, seed)])

    def source(self, data: Any) -> ExampleSource:
        """Returns the examples to sample from; those that are not finite have the weight 0.

        Raises:
            TypeError, ValueError: As `check_data`.
        """
        self.check_data(data)
        # Kept with the table: TensorFlow never frees what a pipeline in Python has read.
        features = data.kept(("array", self.normalize), lambda: _array(data, self.normalize))
        labels = data.labels
        return ArraySource(features, np.maximum(labels, 0), (labels >= 0).astype(np.float32))

    def check_data(self, data: Any) -> None:
        """Rejects what cannot be sampled from.

        Raises:
            TypeError: These are pictures.
            ValueError: The features are more than is kept in memory.
        """
        if not isinstance(data, FeatureTable):
            raise TypeError("a sampled head learns from feature rows; pictures need 'fine_tune'.")
        if 4 * len(data) * data.dim > RESIDENT_BYTES:
            raise ValueError(
                f"{len(data):,} x {data.dim} features are more than sampled training can keep in "
                "memory. Use a full-batch method, which streams them from disk."
            )


class TrainedClassifier:
    """A privately trained model of features or pictures.

    Attributes:
        model: The private Keras model.
        plan: Its privacy plan.
    """

    def __init__(self, model: Any, plan: PrivacyPlan, settings: SampledHead) -> None:
        self.model, self.plan, self._settings = model, plan, settings

    def evaluate(self, data: Any) -> dict[str, float]:
        """Returns accuracy, and mean cross-entropy (nats) of the readable examples.

        Unreadable examples count as wrong, so accuracy is a number of right answers over that of
        examples: one example more or less changes the former by at most 1, on which a charged
        choice relies.
        """
        source = self._settings.source(data)
        with _many_models():
            scores = self.model.evaluate(source, verbose=0, return_dict=True)
        bad = (
            data.bad_examples
            if isinstance(data, FeatureTable)
            else sum(source.bad_records.values())
        )
        readable = 1 - bad / len(source)
        return {"accuracy": float(scores["accuracy"]) * readable, "loss": float(scores["loss"])}

    def privacy_report(self) -> PrivacyReport:
        """Returns the guarantee of the trained weights."""
        return self.model.privacy_report()

    def export(
        self, path: str | Path, class_names: Sequence[str], report: PrivacyReport | None = None
    ) -> Path:
        """Writes one SavedModel with the privacy report inside.

        A model of pictures takes the bytes of picture files, one of features takes features.

        Args:
            path: The folder; a SavedModel that is there is replaced.
            class_names: K names.
            report: What to say of the weights; by default `privacy_report()`.
        """
        said = (report or self.privacy_report()).to_dict()
        shape = self.model.input_shape
        if len(shape) == 2:
            return export_head(self.model, path, said)
        return export_classifier(
            lambda pictures: self.model(pictures, training=False),
            [self.model], shape[1], path, said, class_names,
        )  # fmt: skip


def fit_sampled(
    settings: SampledHead,
    data: Any,
    *,
    num_examples: int,
    num_classes: int,
    epsilon: float,
    delta: float,
    adjacency: str = "add_or_remove_one",
    runs: int = 1,
    seed: int | None = None,
) -> tuple[TrainedClassifier, float]:
    """Trains a classifier privately.

    Args:
        settings: `SampledHead`, for `FeatureTable`, or `FineTune`, for `Pictures`.
        data: What to learn from.
        num_examples: N, public.
        num_classes: K, public.
        epsilon: Of all runs, or infinity for no privacy.
        delta: Of all runs.
        adjacency: As for `PrivacyPlan`.
        runs: So many runs of this schedule, on the same examples, share the budget.
        seed: Of noise, sampling and first weights, for studies; None for weights that are
            released. Other settings and budgets have other noise under the same seed.

    Returns:
        The classifier and the seconds that training took.
    """
    begun = time.perf_counter()
    plan = plan_for(settings, num_examples, epsilon, delta, adjacency, runs)
    seed = seed_for(seed, num_classes, plan, settings)
    source = settings.source(data)
    model = make_private(settings.model(data, num_classes, seed))
    model.compile(
        settings.make_optimizer(plan),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=["accuracy"],  # examples that are not finite have the weight 0
        microbatch_size=settings.microbatch_size,
        seed=seed,
    )
    with _many_models():
        model.fit(source, verbose=0)
    return TrainedClassifier(model, plan, settings), time.perf_counter() - begun


def plan_for(
    settings: SampledHead,
    num_examples: int,
    epsilon: float,
    delta: float,
    adjacency: str = "add_or_remove_one",
    runs: int = 1,
) -> PrivacyPlan:
    """Returns the plan of one of `runs` runs that together cost (epsilon, delta)."""
    numbers = {
        "num_examples": num_examples,
        "delta": delta,
        "adjacency": adjacency,
        **settings.schedule(num_examples),
    }
    if math.isinf(epsilon):
        return PrivacyPlan(**numbers, noise_multiplier=0.0)
    if runs == 1:
        return PrivacyPlan(**numbers, epsilon=epsilon)
    together = PrivacyPlan(**{**numbers, "steps": runs * numbers["steps"]}, epsilon=epsilon)
    return PrivacyPlan(**numbers, noise_multiplier=together.noise_multiplier)


def _array(table: FeatureTable, normalize: str) -> np.ndarray:
    """Returns all normalized features, float32 `[N, D]`."""
    features = np.empty((len(table), table.dim), np.float32)
    for block in table.blocks():
        made = normalized(block.features, normalize)
        features[block.start : block.start + len(made)] = made
    return features


@contextlib.contextmanager
def _many_models() -> Iterator[None]:
    """Silences a warning that is wrong where each of many runs makes a model of its own.

    TensorFlow tells functions apart by their code, and every model has its own functions of the
    same code, each traced once. From the fifth model on it warns that one function is retraced.
    """
    logger = tf.get_logger()
    logger.addFilter(_not_of_retracing)
    try:
        yield
    finally:
        logger.removeFilter(_not_of_retracing)


def _not_of_retracing(record: logging.LogRecord) -> bool:
    return "triggered tf.function retracing" not in record.getMessage()
