"""The sums over examples that methods release, each with every example's contribution clipped.

All are matrix products over blocks of rows; none ever forms the gradient of one example. That
gradient is the outer product of the example's features and a residual `[K]`, so its norm is the
product of two norms.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfdp.transfer.passes import Passes

_GROUP_BYTES = 1 << 30
#: Up to so many, a matrix product with one-hot labels adds rows up by class in less time.
_FEW_CLASSES = 64


def _softmax_residual(logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Returns probabilities minus one-hot targets, `[B, K]`."""
    return tf.nn.softmax(logits) - targets


def _sigmoid_residual(logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Returns the residual of one-versus-rest logistic loss, summed over classes, `[B, K]`."""
    return tf.sigmoid(logits) - targets


#: The derivative by the logits of each loss. Nothing else about a loss matters here.
RESIDUALS: dict[str, Callable[[Any, Any], tf.Tensor]] = {
    "softmax": _softmax_residual,
    "sigmoid": _sigmoid_residual,
}


def first_residual_norm(loss: str, num_classes: int, constant: float = 0.0) -> float:
    """Returns the norm that every residual has while all logits equal a constant.

    sqrt(1 - 1/K) for softmax; sqrt((1 - p)^2 + (K - 1) p^2) with p = sigmoid(constant) for
    one-versus-rest, which is sqrt(K) / 2 at 0.
    """
    if loss == "softmax":
        return math.sqrt(1 - 1 / num_classes)
    p = math.exp(min(constant, 0)) / (1 + math.exp(-abs(constant)))
    return math.sqrt((1 - p) ** 2 + (num_classes - 1) * p**2)


@dataclasses.dataclass(frozen=True)
class View:
    """The affine map x -> [(x - center) @ projection, bias] of a normalized feature row.

    Features seen through a view are never copied: a linear head on seen rows is a linear head on
    plain rows (`folded`), and the norm of a seen row is all that clipping needs of it.

    Attributes:
        center: `[D]`, public or already released with noise, or None.
        projection: `[D, P]`, public or already released with noise, or None.
        bias: The constant appended as the last coordinate; 0 for none.
    """

    center: np.ndarray | None = None
    projection: np.ndarray | None = None
    bias: float = 0.0

    def width(self, dim: int) -> int:
        """Returns P: the columns of a seen row, without the bias."""
        return dim if self.projection is None else self.projection.shape[1]

    def folded(self, kernel: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Maps a head `[P, K]`, `[K]` of seen rows to the head `[D, K]`, `[K]` of plain rows."""
        plain = kernel if self.projection is None else self.projection @ kernel
        offset = self.bias * bias
        if self.center is not None:
            offset = offset - self.center @ plain
        return plain, offset

    def unfolded(self, kernel: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Maps gradients by the plain head to those by the head of seen rows (its transpose)."""
        seen = kernel if self.center is None else kernel - np.outer(self.center, bias)
        if self.projection is not None:
            seen = self.projection.T @ seen
        return seen, self.bias * bias


class ClippedSums:
    """Clipped sums over examples seen through a view.

    Args:
        passes: Over the normalized features.
        view: How they are seen; what it holds must be public or already released with noise.
        weights: A public factor for each class, `[K]`, on what its examples contribute to
            gradients and moments before clipping; 1 if None.
    """

    def __init__(self, passes: Passes, view: View, weights: np.ndarray | None = None) -> None:
        self.view, self._passes = view, passes
        table = passes.table
        self._dim, self.num_classes = table.dim, table.num_classes
        self.width = view.width(table.dim)
        labels = table.labels
        #: 0 for examples that are not finite, else the weight of the example's class.
        self._factors = (labels >= 0).astype(np.float32)
        if weights is not None:
            self._factors *= np.asarray(weights, np.float32)[labels]
        self._center = np.zeros(table.dim) if view.center is None else view.center

    @functools.cached_property
    def norms(self) -> np.ndarray:
        """Norm of every seen row without its bias, float32 `[N]`."""
        projection = self.view.projection
        center = tf.constant(self._center, tf.float32)
        matrix = None if projection is None else tf.constant(projection, tf.float32)
        norms = []
        for piece in self._passes.pieces():
            seen = piece.features - center
            norms.append(tf.norm(seen if matrix is None else seen @ matrix, axis=1))
        return np.concatenate(norms)

    @functools.cached_property
    def _factors_and_norms(self) -> np.ndarray:
        """What a gradient needs to know of every row: its factor, and its norm with the bias."""
        norms = np.sqrt(np.square(self.norms) + self.view.bias**2)
        return np.stack([self._factors, norms.astype(np.float32)], axis=1)

    def gradient(
        self,
        kernel: np.ndarray,
        bias: np.ndarray,
        *,
        loss: str,
        clip_norm: float,
        constant: float = 0.0,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the sum of clipped gradients of a head of seen rows.

        One example's gradient is the outer product of its seen row (with the bias) and its
        residual, so its norm is the product of their norms: two matrix products give the sum.
        While the kernel is zero all rows have the same logits, and sums over classes give it.

        Args:
            kernel, bias: `[P, K]` and `[K]`; logits are row @ kernel + view.bias * bias.
            loss: "softmax" or "sigmoid".
            clip_norm: Largest norm C of one example's gradient over kernel and bias jointly.
            constant: Added to every logit, not trained.

        Returns:
            Sums by kernel `[P, K]` and by bias `[K]`.
        """
        plain, offset = self.view.folded(kernel, bias)
        if not np.any(plain):
            logits = np.asarray(offset + constant, np.float64)
            probabilities = RESIDUALS[loss](logits, 0.0).numpy()
            return self.view.unfolded(*self._gradient_at_zero(probabilities, clip_norm))
        by_plain, by_offset = self._passes.sum(
            _gradient_step(loss),
            [(self._dim, self.num_classes), (self.num_classes,)],
            self._factors_and_norms,
            plain,
            offset + constant,
            np.asarray(clip_norm),
        )
        return self.view.unfolded(by_plain, by_offset)

    def _gradient_at_zero(
        self, probabilities: np.ndarray, clip_norm: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns those sums by the plain head where all rows have the same logits.

        Residuals are the same probabilities `[K]` less the row's one-hot label, so the sum of
        the scaled rows, by class and over all, is all that is needed: no product of N x D x K.
        """
        others = np.sum(probabilities**2) - probabilities**2
        lengths = np.sqrt(np.maximum(others, 0) + (1 - probabilities) ** 2)
        norms = self._factors_and_norms.prod(axis=1) * lengths[self._passes.table.labels]
        sums, counts = self._sums_by_class(self._factors * _clipping(norms, clip_norm))
        by_plain = np.outer(sums.sum(axis=1), probabilities) - sums
        by_offset = counts.sum() * probabilities - counts
        # Like the sums of later steps: noise is drawn in their precision.
        return by_plain.astype(np.float32), by_offset.astype(np.float32)

    def loss(self, kernel: np.ndarray, bias: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Returns the unclipped sums of softmax cross-entropy and its gradients: not private."""
        plain, offset = self.view.folded(kernel, bias)
        shapes = [(), (self._dim, self.num_classes), (self.num_classes,)]
        total, by_plain, by_offset = self._passes.sum(
            _loss_step(), shapes, self._factors[:, None], plain, offset
        )
        return float(total), *self.view.unfolded(by_plain, by_offset)

    def class_sums(self, clip_norm: float) -> np.ndarray:
        """Returns the sum of each class's seen rows, `[P, K]`, each clipped to C (no bias)."""
        sums, counts = self._sums_by_class(self._clip_factors(clip_norm))
        seen = sums - np.outer(self._center, counts)
        return seen if self.view.projection is None else self.view.projection.T @ seen

    def row_sum(self, clip_norm: float) -> np.ndarray:
        """Returns the sum of all seen rows, `[P]`, each clipped to C (no bias)."""
        return self.class_sums(clip_norm).sum(axis=1)

    def class_counts(self) -> np.ndarray:
        """Returns the number of examples of each class, `[K]`; one example counts 1."""
        labels = self._passes.table.labels
        return np.bincount(labels[labels >= 0], minlength=self.num_classes).astype(np.float64)

    def second_moment(self, clip_norm: float) -> np.ndarray:
        """Returns the sum of x x^T over seen rows clipped to C (no bias), `[P, P]`, symmetric."""
        factors, passes = self._clip_factors(clip_norm), self._passes

        def moment() -> np.ndarray:
            shape = (self._dim, self._dim)
            (total,) = passes.sum(_moment_step(), [shape], factors[:, None], self._center)
            return (total.astype(np.float64) + total.T) / 2

        # A study needs the same sum for many methods. It is private: it stays with the features.
        key = passes.strategy, factors.tobytes(), self._center.tobytes()
        total = passes.table.kept(("second moment", passes.normalize), moment, key)
        if self.view.projection is None:
            return total
        return self.view.projection.T @ total @ self.view.projection

    def class_second_moments(self, clip_norm: float) -> Iterator[np.ndarray]:
        """Yields the same of each class by itself, `[P, P]` each, in the order of the classes.

        Classes are gathered in groups whose matrices fit in a gigabyte; each group is one pass.
        """
        group = max(1, _GROUP_BYTES // (4 * self._dim**2))
        factors = self._clip_factors(clip_norm)
        projection = self.view.projection
        for first in range(0, self.num_classes, group):
            labels = np.arange(first, min(first + group, self.num_classes))
            totals = np.zeros((len(labels), self._dim, self._dim), np.float32)
            for piece in self._passes.pieces():
                own = piece.labels.numpy()
                rows = piece.features.numpy() - self._center.astype(np.float32)
                rows *= factors[piece.start : piece.start + len(own), None]
                for label in np.intersect1d(own, labels):
                    chosen = rows[own == label]
                    totals[label - first] += chosen.T @ chosen
            for total in totals:
                yield total if projection is None else projection.T @ total @ projection

    def _clip_factors(self, clip_norm: float) -> np.ndarray:
        """Returns what each row is multiplied by: its weight, and what then clips it to C."""
        return self._factors * _clipping(self.norms * self._factors, clip_norm)

    def _sums_by_class(self, factors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns by class the sums of rows times factors, `[D, K]`, and of the factors, `[K]`."""
        shapes = [(self.num_classes, self._dim), (self.num_classes,)]
        sums, counts = self._passes.sum(_class_step(self.num_classes), shapes, factors[:, None])
        return sums.T.astype(np.float64), counts.astype(np.float64)


def _clipping(norms: np.ndarray, clip_norm: float) -> np.ndarray:
    """Returns min(1, C / norm) of each, float32 `[N]`."""
    norms = np.asarray(norms, np.float32)
    return np.divide(clip_norm, norms, out=np.ones_like(norms), where=norms > clip_norm)


@functools.cache
def _gradient_step(loss: str) -> Callable[..., Any]:
    residual = RESIDUALS[loss]

    @tf.function(reduce_retracing=True)
    def step(totals, features, labels, values, constants):  # type: ignore[no-untyped-def]
        kernel, offset, clip_norm = constants
        factors, norms = tf.unstack(values, axis=1)
        logits = tf.matmul(features, kernel) + offset
        rest = residual(logits, tf.one_hot(labels, tf.shape(kernel)[1]))
        lengths = tf.norm(rest, axis=1) * factors * norms
        # A gradient of length 0 adds nothing, so it does not matter that 0 / 0 gives 0 here.
        clipped = tf.minimum(1.0, tf.math.divide_no_nan(clip_norm, lengths))
        rest *= (factors * clipped)[:, None]
        by_kernel = totals[0] + tf.matmul(features, rest, transpose_a=True)
        return by_kernel, totals[1] + tf.reduce_sum(rest, axis=0)

    return step


@functools.cache
def _loss_step() -> Callable[..., Any]:
    @tf.function(reduce_retracing=True)
    def step(totals, features, labels, values, constants):  # type: ignore[no-untyped-def]
        kernel, offset = constants
        factors = values[:, 0]
        logits = tf.matmul(features, kernel) + offset
        targets = tf.one_hot(labels, tf.shape(kernel)[1])
        losses = tf.nn.softmax_cross_entropy_with_logits(targets, logits)
        rest = (tf.nn.softmax(logits) - targets) * factors[:, None]
        return (
            totals[0] + tf.reduce_sum(losses * factors),
            totals[1] + tf.matmul(features, rest, transpose_a=True),
            totals[2] + tf.reduce_sum(rest, axis=0),
        )

    return step


@functools.cache
def _class_step(classes: int) -> Callable[..., Any]:
    @tf.function(reduce_retracing=True)
    def step(totals, features, labels, values, constants):  # type: ignore[no-untyped-def]
        counts = tf.math.unsorted_segment_sum(values[:, 0], labels, classes)
        if classes <= _FEW_CLASSES:
            targets = tf.one_hot(labels, classes) * values
            sums = tf.matmul(targets, features, transpose_a=True)
        else:
            sums = tf.math.unsorted_segment_sum(features * values, labels, classes)
        return totals[0] + sums, totals[1] + counts

    return step


@functools.cache
def _moment_step() -> Callable[..., Any]:
    @tf.function(reduce_retracing=True)
    def step(totals, features, labels, values, constants):  # type: ignore[no-untyped-def]
        seen = (features - constants[0]) * values
        return (totals[0] + tf.matmul(seen, seen, transpose_a=True),)

    return step
