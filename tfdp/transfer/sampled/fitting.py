"""From settings, records and a budget to a privately trained classifier."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from tfdp.privacy import PrivacyPlan, PrivacyReport
from tfdp.training import make_private
from tfdp.transfer.rows import Rows
from tfdp.transfer.sampled.head import SampledHead
from tfdp.transfer.sampled.quiet import many_models
from tfdp.transfer.seeds import child_seed
from tfdp.transfer.serving import export_head, export_pictures


class TrainedClassifier:
    """A privately trained model of features or pictures.

    Attributes:
        model: the private Keras model.
        plan: its privacy plan.
    """

    def __init__(self, model: Any, plan: PrivacyPlan, settings: SampledHead) -> None:
        self.model, self.plan, self._settings = model, plan, settings

    def evaluate(self, rows: Any) -> dict[str, float]:
        """Accuracy, unreadable records counting as wrong, and mean cross-entropy (nats) of others.

        Accuracy is then a number of right answers over that of records: one record more or less
        changes the former by at most 1, which a charged choice relies on.
        """
        source = self._settings.source(rows)
        with many_models():
            scores = self.model.evaluate(source, verbose=0, return_dict=True)
        bad = rows.bad_rows if isinstance(rows, Rows) else sum(source.bad_records.values())
        readable = 1 - bad / len(source)
        return {"accuracy": float(scores["accuracy"]) * readable, "loss": float(scores["loss"])}

    def privacy_report(self) -> PrivacyReport:
        """The guarantee of the trained weights."""
        return self.model.privacy_report()

    def export(
        self, path: str | Path, class_names: Sequence[str], report: PrivacyReport | None = None
    ) -> Path:
        """Writes one SavedModel with the privacy report inside.

        A model of pictures takes the bytes of picture files, one of features takes features.

        Args:
            path: the folder; a SavedModel that is there is replaced.
            class_names: K names.
            report: what to say of the weights; by default `privacy_report()`.
        """
        said = (report or self.privacy_report()).to_dict()
        shape = self.model.input_shape
        if len(shape) == 2:
            return export_head(self.model, path, said)
        return export_pictures(
            lambda pictures: self.model(pictures, training=False),
            [self.model], shape[1], path, said, class_names,
        )  # fmt: skip


def fit_sampled(
    settings: SampledHead,
    rows: Any,
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
        settings: `SampledHead`, for `Rows`, or `FineTune`, for `Pictures`.
        rows: what to learn from.
        num_examples: N, public.
        num_classes: K, public.
        epsilon: of all runs, or infinity for no privacy.
        delta: of all runs.
        adjacency: as for `PrivacyPlan`.
        runs: so many runs of this schedule, on the same rows, share the budget.
        seed: of noise, sampling and first weights, for studies; None for weights that are
            published. Other settings and budgets have other noise under the same seed.

    Returns:
        The classifier and the seconds that training took.
    """
    begun = time.perf_counter()
    plan = plan_for(settings, num_examples, epsilon, delta, adjacency, runs)
    seed = child_seed(seed, num_classes, plan.to_dict(), settings)
    source = settings.source(rows)
    model = make_private(settings.model(rows, num_classes, seed))
    model.compile(
        settings.make_optimizer(plan),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=["accuracy"],  # rows that are not finite weigh nothing
        microbatch_size=settings.microbatch_size,
        seed=seed,
    )
    with many_models():
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
    """The plan of one of `runs` runs that together cost (epsilon, delta)."""
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
