"""Few-shot linear probe: how much of a picture's class can be read off its features."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression


@dataclasses.dataclass(frozen=True)
class ProbeResult:
    """Top-1 accuracy on the test set, over several draws of the labeled examples.

    Attributes:
        mean: Mean over the draws.
        deviation: Sample standard deviation over the draws, 0 for a single draw.
        accuracies: The accuracy of each draw.
    """

    mean: float
    deviation: float
    accuracies: tuple[float, ...]

    def to_dict(self) -> dict[str, float | list[float]]:
        """The attributes by name, ready for JSON."""
        return {**dataclasses.asdict(self), "accuracies": list(self.accuracies)}


def few_shot_probe(
    features_train: npt.ArrayLike,
    labels_train: npt.ArrayLike,
    features_test: npt.ArrayLike,
    labels_test: npt.ArrayLike,
    *,
    shots: Sequence[int] = (1, 2, 5, 10),
    draws: int = 5,
    seed: int = 0,
    l2: float = 0.0025,
) -> dict[int, ProbeResult]:
    """Multinomial logistic regression on a few labeled examples of each class.

    The protocol is that of the reference (the logistic evaluation of Masked Siamese Networks, which
    DP-Cap uses): each feature row is centered by its own mean and scaled to unit L2 norm, and the
    regression has no intercept and an L2 penalty of `l2 / n` for n labeled examples.

    The draws depend only on the labels, `seed`, the shot and the draw's number. Different features
    of the same pictures are therefore probed on the same examples and compare draw by draw.

    Args:
        features_train: `[N, D]`, where the labeled examples are drawn from.
        labels_train: `[N]`, any hashable classes.
        features_test: `[M, D]`.
        labels_test: `[M]`.
        shots: Labeled examples per class.
        draws: Random draws of the labeled examples for each shot.
        seed: Of the draws.
        l2: Strength of the penalty before the division by n.

    Returns:
        The result for each shot.

    Raises:
        ValueError: If shapes disagree, features are not finite, a class has fewer examples than the
            largest shot, or the test set has classes that the training set lacks.
    """
    train, train_labels = _checked("train", features_train, labels_train)
    test, test_labels = _checked("test", features_test, labels_test)
    if train.shape[1] != test.shape[1]:
        raise ValueError(
            f"features_train have {train.shape[1]} columns, features_test {test.shape[1]}: "
            "both must come from the same encoder."
        )
    _check_classes(train_labels, test_labels, shots)
    if draws < 1:
        raise ValueError(f"draws must be at least 1, got {draws}.")

    train, test = _normalized(train), _normalized(test)
    results = {}
    for shot in shots:
        accuracies = []
        for draw in range(draws):
            chosen = _draw(train_labels, shot, np.random.default_rng([seed, shot, draw]))
            # The weights lie in the span of the examples: a few of its coordinates are enough.
            basis = np.linalg.qr(train[chosen].T)[0]
            probe = _fit(train[chosen] @ basis, train_labels[chosen], l2)
            accuracies.append(float(probe.score(test @ basis, test_labels)))
        deviation = float(np.std(accuracies, ddof=1)) if draws > 1 else 0.0
        results[shot] = ProbeResult(float(np.mean(accuracies)), deviation, tuple(accuracies))
    return results


def _checked(
    name: str, features: npt.ArrayLike, labels: npt.ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    rows, classes = np.asarray(features, dtype=np.float64), np.asarray(labels)
    if rows.ndim != 2 or classes.shape != rows.shape[:1]:
        raise ValueError(
            f"features_{name} must be [N, D] and labels_{name} [N], "
            f"got {rows.shape} and {classes.shape}."
        )
    if not np.isfinite(rows).all():
        raise ValueError(f"features_{name} hold values that are not finite.")
    return rows, classes


def _check_classes(train_labels: np.ndarray, test_labels: np.ndarray, shots: Sequence[int]) -> None:
    classes, counts = np.unique(train_labels, return_counts=True)
    if len(classes) < 2:
        raise ValueError(f"labels_train must hold at least 2 classes, got {len(classes)}.")
    if not shots or min(shots) < 1:
        raise ValueError(f"shots must be one or more numbers of at least 1, got {tuple(shots)}.")
    if counts.min() < max(shots):
        raise ValueError(
            f"class {classes[counts.argmin()]!r} has {counts.min()} examples in labels_train, "
            f"too few for shots={tuple(shots)}: leave the class out or ask for fewer shots."
        )
    unknown = np.setdiff1d(test_labels, classes)
    if unknown.size:
        raise ValueError(
            f"labels_test has classes that labels_train lacks: {unknown[:5].tolist()}."
        )


def _normalized(rows: np.ndarray) -> np.ndarray:
    """Each row minus its own mean, at unit L2 norm; a constant row becomes zero."""
    centered = rows - rows.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(centered, axis=1, keepdims=True)
    # What is left of a constant row is rounding error, which must not be blown up to unit norm.
    tiny = 1e-12 * np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(centered, norms, out=np.zeros_like(centered), where=norms > tiny)


def _draw(labels: np.ndarray, shot: int, generator: np.random.Generator) -> np.ndarray:
    """The indices of `shot` examples of each class, without replacement."""
    return np.concatenate(
        [
            generator.choice(np.flatnonzero(labels == label), shot, replace=False)
            for label in np.unique(labels)
        ]
    )


def _fit(rows: np.ndarray, labels: np.ndarray, l2: float) -> LogisticRegression:
    """Minimizes mean cross-entropy + l2 / (2 n) * ||W||^2 over one weight row per class.

    The reference's solver (cyanure) minimizes mean(loss) + lambda / 2 * ||W||^2 with
    lambda = l2 / n, scikit-learn C * sum(loss) + 1 / 2 * ||W||^2: they agree at
    C = 1 / (n * lambda) = 1 / l2, whatever n. With two classes scikit-learn keeps only the
    difference d of the two rows. The minimum has rows d/2 and -d/2, of squared norm ||d||^2 / 2,
    so there C has to be twice as large.
    """
    classes = len(np.unique(labels))
    strength = (2.0 if classes == 2 else 1.0) / l2
    model = LogisticRegression(C=strength, fit_intercept=False, max_iter=10_000, tol=1e-6)
    return model.fit(rows, labels)
