"""The Keras-like face: a private classifier of features in four lines."""

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
from tfdp.privacy.noise import NoiseKey
from tfdp.privacy.report import build_report
from tfdp.privacy.report_text import SEED_NOTE
from tfdp.privacy.spenders import note_training
from tfdp.transfer.backbones import Backbone
from tfdp.transfer.budget import check_count, shared, whole_budget
from tfdp.transfer.head import Head
from tfdp.transfer.methods import METHODS, Method, Problem, Task
from tfdp.transfer.passes import Passes, passes_over
from tfdp.transfer.prepare import Preparation
from tfdp.transfer.rows import as_rows
from tfdp.transfer.seeds import child_seed
from tfdp.transfer.serving import check_backbone, export_head, export_pictures
from tfdp.transfer.spending import Spending


class LastLayer:
    """A linear classifier of features, trained privately.

        head = tfdp.transfer.LastLayer(10, num_examples=50_000, epsilon=1.0, delta=1e-5)
        head.fit(features, labels)
        print(head.evaluate(test_features, test_labels), head.privacy_report())
        labels = head.predict(new_features).argmax(axis=1)

    Args:
        num_classes: K, two or more; a public number.
        num_examples: N; a public number that sums are divided by. State it: taken from the data,
            it would tell neighbouring data sets apart.
        epsilon: the budget, or infinity for no privacy. Leave it out if `noise_multiplier` is
            given.
        delta: of the guarantee, commonly below 1 / num_examples.
        noise_multiplier: the noise that the whole budget amounts to as one release.
        method: "auto" or another name in `tfdp.transfer.METHODS`, or a method with settings of
            its own, for instance `tfdp.transfer.FullBatch(Steps(steps=20))`.
        preparation: of rows, before the method; None for the default of the method.
        public_features: `[M, D]` from the same backbone for public centring and components.
        adjacency: "add_or_remove_one" or "replace_one" (twice the noise for the same epsilon).
        seed: makes the noise reproducible, for tests only: whoever knows the seed can take the
            noise off. Heads of other settings have other noise under the same seed. None draws
            the key from the operating system.
        strategy: a `tf.distribute` strategy, the current one when None.

    Raises:
        TypeError, ValueError: an argument is out of range; the message says which and how.
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
        self._spending: Spending | None = None
        self._earlier: Counter[str] = Counter()  # releases of the fits before the last one
        self._bad_rows = 0

    def fit(self, features: Any, labels: Any = None) -> LastLayer:
        """Fits the head. Each call is a new run on new noise, and is paid for like the first.

        A second one goes beyond the budget given, and is warned of.

        Args:
            features: `[N, D]` array or memory map, or `Rows` (of a feature folder).
            labels: integers `[N]` or one-hot `[N, K]`; none with `Rows`, which have theirs. A class
                without examples is never learnt, and nothing says that it has none, which is
                private.

        Returns:
            self.
        """
        rows = as_rows(features, labels, self.num_classes)
        check_count(len(rows), self.plan.num_examples, rows.stray)
        task = Task(self.plan.num_examples, self.num_classes, rows.dim, self.plan.noise_multiplier)
        method = self._method.settled(task)
        preparation = self._given_preparation or method.preparation
        ledger = self._spending.ledger if self._spending else None
        key = self._key(method, preparation)
        if ledger is not None:
            warnings.warn(
                "This head was fitted before, within its budget (epsilon "
                f"{self.plan.epsilon:.4g}). Another fit is paid for like the first, and the "
                "report adds both up.",
                stacklevel=2,
            )
            key = key.child(f"fit {ledger.steps}")
            self._earlier = self._made()
        spending = Spending(self.plan, shared(preparation, method, task), key, ledger)
        self._spending, self._bad_rows = spending, rows.bad_rows
        # Rows that the caller holds on to are likely to be fitted again.
        over = passes_over if rows is features else Passes
        passes = over(rows, preparation.normalise, self._strategy)
        view = preparation.view(passes, spending, self._public)
        weights = preparation.weights(passes, spending)
        problem = Problem(task, passes, view, weights, preparation.typical_norm(view), spending)
        self._head = method.fit(problem)
        return self

    @property
    def head(self) -> Head:
        """The fitted head."""
        if self._head is None:
            raise RuntimeError("this head has not been fitted: call fit(features, labels) first.")
        return self._head

    def predict(self, features: Any) -> np.ndarray:
        """Class probabilities (softmax of the logits), float32 `[B, K]`."""
        logits = self.logits(features)
        logits -= logits.max(axis=1, keepdims=True)
        probabilities = np.exp(logits)
        return probabilities / probabilities.sum(axis=1, keepdims=True)

    def logits(self, features: Any) -> np.ndarray:
        """Logits, float32 `[B, K]`."""
        table = np.asarray(features)
        dim = self.head.kernel.shape[0]
        if table.ndim != 2 or table.shape[1] != dim:
            raise ValueError(f"features must have shape [B, {dim}], got {table.shape}.")
        return self.head.logits(table)

    def evaluate(self, features: Any, labels: Any = None) -> dict[str, float]:
        """Accuracy and mean cross-entropy (nats); rows that are not finite count as wrong."""
        rows = as_rows(features, labels, self.num_classes)
        labels, correct, loss = rows.labels, 0, 0.0
        for block in rows.blocks():
            logits = self.logits(block.features).astype(np.float64)
            own = np.take_along_axis(logits, block.labels[:, None], axis=1)[:, 0]
            loss += float(np.sum(np.logaddexp.reduce(logits, axis=1) - own))
            true = labels[block.start : block.start + len(own)]
            correct += int(np.sum(logits.argmax(axis=1) == true))
        return {"accuracy": correct / len(rows), "loss": loss / len(rows)}

    def privacy_report(self) -> PrivacyReport:
        """The guarantee of everything that this object has published, with each release."""
        if self._spending is None:
            raise RuntimeError("nothing has been published yet: call fit(features, labels) first.")
        spending = self._spending
        report = build_report(
            self.plan,
            spending.ledger,
            counts={"rows that are not finite": self._bad_rows},
            unit="one feature row with its label",
        )
        notes = [spending.note] if self._seed is None else [SEED_NOTE, spending.note]
        planned = sum(release.count for release in spending.releases.values())
        made = self._made()
        return PrivacyReport(
            {
                **report.values,
                "planned_steps": planned,
                "notes": notes,
                "releases": [
                    {**release, "made": made[release["name"]]} for release in spending.table()
                ],
            }
        )

    def _made(self) -> Counter[str]:
        """How often each release was made, in all fits: they have the same releases."""
        last = self._spending.table() if self._spending else []
        return self._earlier + Counter({release["name"]: release["made"] for release in last})

    def to_keras(self, backbone: keras.Model | None = None) -> keras.Model:
        """The head as a Keras model of features, or behind the backbone that made them.

        Made private and compiled, it goes on with what the head has cost.
        """
        head = self.head.to_keras()
        if self._spending is not None:
            note_training(head.variables, self._spending.ledger)
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
            path: the folder; a SavedModel that is there is replaced.
            backbone: what made the features. With a `Backbone` the SavedModel takes the bytes
                of pictures, with a Keras model its inputs, without one features.
            class_names: for a `Backbone`; "0", "1", ... by default.
            report: what to say of the weights; by default `privacy_report()`.

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

        def logits(pictures: tf.Tensor) -> tf.Tensor:
            return head(backbone.features(pictures))

        parts = [backbone.resources, head]
        return export_pictures(logits, parts, backbone.image_size, path, said, names)

    def _key(self, method: Method, preparation: Preparation) -> NoiseKey:
        """The key of the noise; under one seed, heads that differ in anything have their own."""
        own = child_seed(
            self._seed, self.num_classes, self.plan.to_dict(), method, preparation, self._public
        )
        return NoiseKey.from_entropy() if own is None else NoiseKey.from_seed(own)


def named_method(method: str | Method) -> Method:
    """The method itself, or the one of that name with its default settings.

    Raises:
        ValueError: there is no such method.
    """
    if isinstance(method, Method):
        return method
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}.")
    return METHODS[method]()
