"""A private classifier of features in four lines."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp import checks
from tfdp.privacy import PrivacyReport
from tfdp.privacy.report import build_report
from tfdp.privacy.report_text import SEED_NOTE
from tfdp.privacy.spenders import note_training
from tfdp.transfer.backbones import Backbone
from tfdp.transfer.classifier_export import check_backbone, export_classifier, export_head
from tfdp.transfer.feature_preparation import Preparation
from tfdp.transfer.feature_table import as_table
from tfdp.transfer.linear_head import Head
from tfdp.transfer.methods.auto import named_method
from tfdp.transfer.methods.method import Method, Task, prepared, shared_releases
from tfdp.transfer.passes import Passes, shared_passes
from tfdp.transfer.release_budget import Spending, key_from, seed_for, whole_budget

_MOST_STRAY = 0.01  # by how much the features may differ from num_examples before it is an error


class LastLayer:
    """A linear classifier of features, trained privately.

        head = tfdp.transfer.LastLayer(10, num_examples=50_000, epsilon=1.0, delta=1e-5)
        head.fit(features, labels)
        print(head.evaluate(test_features, test_labels), head.privacy_report())
        labels = head.predict(new_features).argmax(axis=1)

    Args:
        num_classes: K, two or more; a public number.
        num_examples: N; a public number that sums are divided by. It must be stated, since a
            number taken from the data would tell neighboring datasets apart.
        epsilon: The budget, or infinity for no privacy. Omit it if `noise_multiplier` is given.
        delta: Of the guarantee, commonly below 1 / num_examples.
        noise_multiplier: The noise of the whole budget, if it were spent on one release.
        method: "auto" or another name in `tfdp.transfer.METHODS`, or a method with settings of
            its own, for instance `tfdp.transfer.FullBatch(Steps(steps=20))`.
        preparation: Of the features, before the method; None for the default of the method.
        public_features: `[M, D]` from the same backbone for public centering and components.
        adjacency: "add_or_remove_one" or "replace_one" (twice the noise for the same epsilon).
        seed: Makes the noise reproducible, for tests only: whoever knows the seed can remove the
            noise. Under one seed, heads with different settings have different noise. With None,
            the key comes from the operating system's entropy.
        strategy: A `tf.distribute` strategy; the current one if None.

    Raises:
        TypeError, ValueError: An argument is out of range; the message says which and how.
    """

    def __init__(
        self,
        num_classes: int,
        *,
        num_examples: int,
        epsilon: float | None = None,
        delta: float = 1e-5,
        noise_multiplier: float | None = None,
        method: str | Method = "auto",
        preparation: Preparation | None = None,
        public_features: np.ndarray | None = None,
        adjacency: str = "add_or_remove_one",
        seed: int | None = None,
        strategy: tf.distribute.Strategy | None = None,
    ) -> None:
        checks.seed(seed)
        if strategy is not None:
            checks.kind("strategy", strategy, tf.distribute.Strategy)
        if preparation is not None:
            checks.kind("preparation", preparation, Preparation)
        self.num_classes = checks.class_count(num_classes)
        self.plan = whole_budget(num_examples, epsilon, delta, noise_multiplier, adjacency)
        self._method = named_method(method)
        self._given_preparation = preparation
        self._public = public_features
        self._seed, self._strategy = seed, strategy
        self._head: Head | None = None
        self._spendings: list[Spending] = []  # one a fit, all on the same ledger
        self._bad_examples = 0

    def fit(self, features: Any, labels: Any = None) -> LastLayer:
        """Fits the head. Each call is a new run on new noise, and spends as much as the first.

        A second call goes beyond the budget given, and warns of that.

        Args:
            features: `[N, D]` array or memory map, or a `FeatureTable` (of a feature folder).
            labels: Integers `[N]` or one-hot `[N, K]`; none with a `FeatureTable`, which has its
                own. A class without examples is never learned. No message says so, since the
                absence of examples is private.

        Returns:
            self.
        """
        table = as_table(features, labels, self.num_classes)
        check_count(len(table), self.plan.num_examples, table.stray)
        task = Task(self.plan.num_examples, self.num_classes, table.dim, self.plan.noise_multiplier)
        method = self._method.settled(task)
        preparation = self._given_preparation or method.preparation
        # Under one seed, heads that differ in anything have noise of their own.
        key = key_from(
            seed_for(self._seed, self.num_classes, self.plan, method, preparation, self._public)
        )
        ledger = None
        if self._spendings:
            warnings.warn(
                "This head was fitted before, within its budget (epsilon "
                f"{self.plan.epsilon:.4g}). Another fit spends as much as the first, and the "
                "report adds both up.",
                stacklevel=2,
            )
            ledger = self._spendings[0].ledger
            key = key.child(f"fit {ledger.steps}")
        spending = Spending(self.plan, shared_releases(preparation, method, task), key, ledger)
        self._spendings.append(spending)
        self._bad_examples = table.bad_examples
        # A table that the caller holds is likely to be fitted again.
        passes_over = shared_passes if table is features else Passes
        passes = passes_over(table, preparation.normalize, self._strategy)
        self._head = method.fit(prepared(preparation, task, passes, spending, self._public))
        return self

    @property
    def head(self) -> Head:
        """The fitted head."""
        if self._head is None:
            raise RuntimeError("this head has not been fitted: call fit(features, labels) first.")
        return self._head

    def predict(self, features: Any) -> np.ndarray:
        """Returns class probabilities (softmax of the logits), float32 `[B, K]`."""
        logits = self.logits(features)
        logits -= logits.max(axis=1, keepdims=True)
        probabilities = np.exp(logits)
        return probabilities / probabilities.sum(axis=1, keepdims=True)

    def logits(self, features: Any) -> np.ndarray:
        """Returns logits, float32 `[B, K]`."""
        table = np.asarray(features)
        dim = self.head.kernel.shape[0]
        if table.ndim != 2 or table.shape[1] != dim:
            raise ValueError(f"features must have shape [B, {dim}], got {table.shape}.")
        return self.head.logits(table)

    def evaluate(self, features: Any, labels: Any = None) -> dict[str, float]:
        """Returns accuracy and mean cross-entropy (nats).

        Examples that are not finite count as wrong.
        """
        table = as_table(features, labels, self.num_classes)
        true_labels, correct, loss = table.labels, 0, 0.0
        for block in table.blocks():
            logits = self.logits(block.features).astype(np.float64)
            own = np.take_along_axis(logits, block.labels[:, None], axis=1)[:, 0]
            loss += float(np.sum(np.logaddexp.reduce(logits, axis=1) - own))
            true = true_labels[block.start : block.start + len(own)]
            correct += int(np.sum(logits.argmax(axis=1) == true))
        return {"accuracy": correct / len(table), "loss": loss / len(table)}

    def privacy_report(self) -> PrivacyReport:
        """Returns the guarantee of everything that this object released, with each release."""
        if not self._spendings:
            raise RuntimeError("nothing has been released yet: call fit(features, labels) first.")
        last = self._spendings[-1]
        report = build_report(
            self.plan,
            last.ledger,
            counts={"rows that are not finite": self._bad_examples},
            unit="one feature row with its label",
        )
        made = Counter[str]()
        for spending in self._spendings:
            made.update({release["name"]: release["made"] for release in spending.table()})
        return PrivacyReport(
            {
                **report.values,
                "planned_steps": sum(release.count for release in last.releases.values()),
                "notes": [last.note] if self._seed is None else [SEED_NOTE, last.note],
                "releases": [{**row, "made": made[row["name"]]} for row in last.table()],
            }
        )

    def to_keras(self, backbone: keras.Model | None = None) -> keras.Model:
        """Returns the head as a Keras model of features, or behind the backbone that made them.

        Made private and compiled, the model continues the ledger of the head.
        """
        head = self.head.to_keras()
        note_training(head.variables, self._spendings[-1].ledger)
        if backbone is None:
            return head
        return keras.Model(backbone.inputs, head(backbone.outputs[0]), name="classifier")

    def export(
        self,
        path: str | Path,
        backbone: Backbone | keras.Model | None = None,
        class_names: Sequence[str] | None = None,
        report: PrivacyReport | None = None,
    ) -> Path:
        """Writes one SavedModel with the privacy report inside (`assets/privacy_report.json`).

        Args:
            path: The folder; a SavedModel that is there is replaced.
            backbone: What made the features. With a `Backbone` the SavedModel takes the bytes
                of picture files, with a Keras model its inputs, without one features.
            class_names: For a `Backbone`; "0", "1", ... by default.
            report: The report on the weights; by default `privacy_report()`.

        Raises:
            FileExistsError: `path` exists and is not a SavedModel.
            TypeError, ValueError: `backbone` cannot have made the features, or `class_names` are
                not as many as classes.
        """
        said = (report or self.privacy_report()).to_dict()
        if backbone is not None:
            check_backbone(backbone, len(self.head.kernel))
        if not isinstance(backbone, Backbone):
            return export_head(self.to_keras(backbone), path, said)
        names = list(class_names or map(str, range(self.num_classes)))
        if len(names) != self.num_classes:
            raise ValueError(f"class_names must be {self.num_classes} names, got {len(names)}.")
        head = self.to_keras()

        return export_classifier(
            lambda pictures: head(backbone.features(pictures)),
            [backbone.resources, head],
            backbone.image_size, path, said, names,
        )  # fmt: skip


def check_count(count: int, stated: int, stray: float = 0.0) -> None:
    """Rejects features that are far more or fewer than stated; privacy hides a small difference.

    Args:
        count: How many examples there are.
        stated: N, public.
        stray: How many more or fewer they may be, if that is more than one in a hundred.

    Raises:
        ValueError: They are too many or too few.
    """
    if abs(count - stated) > max(1, _MOST_STRAY * stated, stray):
        raise ValueError(
            f"num_examples={stated}, but there are {count} examples: sums would be divided by the "
            "wrong number. Set num_examples to the public size of the data."
        )
