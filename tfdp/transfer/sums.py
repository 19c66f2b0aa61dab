"""The sums over rows that methods publish, each with every row's contribution bounded.

All are matrix products over blocks of rows; none ever forms a gradient of one example.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfdp.transfer.losses import residual_of
from tfdp.transfer.passes import Passes
from tfdp.transfer.view import View

_GROUP_BYTES = 1 << 30


class RowSums:
    """Bounded sums over rows seen through a view.

    Args:
        passes: over the rows.
        view: how rows are seen; what it holds must be public or already private.
        weights: a public factor for each class, `[K]`, on the residuals of its rows; 1 if None.
    """

    def __init__(self, passes: Passes, view: View, weights: np.ndarray | None = None) -> None:
        self.view = view
        self._passes = passes
        rows = passes.rows
        self.width, self.num_classes = view.width(rows.dim), rows.num_classes
        scales = view.scales(rows.norms)
        labels = rows.labels
        present = (labels >= 0).astype(np.float32)
        factors = present if weights is None else present * np.asarray(weights)[labels]
        self._scales, self._present, self._factors = scales, present, factors
        self._centre = np.zeros(rows.dim) if view.centre is None else view.centre

    @functools.cached_property
    def norms(self) -> np.ndarray:
        """Norm of every seen row with its bias, float32 `[N]`."""
        view, rows = self.view, self._passes.rows
        if view.centre is None and view.projection is None:
            squares = np.square(self._scales * rows.norms)
        else:
            squares = np.concatenate(
                [np.square(view.apply(b.features)).sum(axis=1) for b in rows.blocks()]
            )
        return np.sqrt(squares + view.bias**2).astype(np.float32)

    def gradient(
        self,
        kernel: np.ndarray,
        bias: np.ndarray,
        *,
        loss: str,
        clip_norm: float,
        constant: float = 0.0,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The sum of clipped gradients of a head of seen rows.

        One example's gradient is the outer product of its seen row (with the bias) and its
        residual, so its norm is the product of their norms: two matrix products give the sum.

        Args:
            kernel, bias: `[P, K]` and `[K]`; logits are row @ kernel + view.bias * bias.
            loss: "softmax" or "sigmoid".
            clip_norm: largest norm C of one example's gradient over kernel and bias jointly.
            constant: added to every logit, not trained.

        Returns:
            Sums by kernel `[P, K]` and by bias `[K]`.
        """
        plain, offset = self.view.folded(kernel, bias)
        offset = offset + constant
        values = np.stack([self._scales, self._factors, self.norms], axis=1)
        step = _gradient_step(loss)
        dim = self._passes.rows.dim
        by_plain, by_offset = self._passes.sum(
            step, [(dim, self.num_classes), (self.num_classes,)], values, plain, offset, [clip_norm]
        )
        return self.view.unfolded(by_plain, by_offset)

    def class_sums(self, clip_norm: float) -> np.ndarray:
        """The sum of the rows of each class, `[P, K]`, each seen row clipped to C (no bias)."""
        factors = self._clip_factors(clip_norm)
        values = np.stack([self._scales * factors, factors], axis=1)
        shapes = [(self._passes.rows.dim, self.num_classes), (self.num_classes,)]
        sums, counts = self._passes.sum(_class_step(), shapes, values)
        return self._seen(sums, counts)

    def class_counts(self) -> np.ndarray:
        """The number of rows of each class, `[K]`; one row counts 1."""
        labels = self._passes.rows.labels
        return np.bincount(labels[labels >= 0], minlength=self.num_classes).astype(np.float64)

    def second_moment(self, clip_norm: float) -> np.ndarray:
        """The sum of x x^T over seen rows clipped to C (no bias), `[P, P]`, symmetric."""
        values = self._clip_factors(clip_norm)[:, None] * np.stack(
            [self._scales, self._present], axis=1
        )
        dim = self._passes.rows.dim
        (total,) = self._passes.sum(_moment_step(), [(dim, dim)], values, self._centre)
        total = (total + total.T) / 2
        if self.view.projection is None:
            return total
        return self.view.projection.T @ total @ self.view.projection

    def class_second_moments(self, clip_norm: float) -> Iterator[np.ndarray]:
        """The same of each class by itself, `[P, P]` each, in the order of the classes.

        Classes are gathered in groups whose matrices fit in a gigabyte; each group is one pass.
        """
        group = max(1, _GROUP_BYTES // (4 * self.width**2))
        factors = self._clip_factors(clip_norm)
        for first in range(0, self.num_classes, group):
            labels = range(first, min(first + group, self.num_classes))
            totals = {label: np.zeros((self.width, self.width), np.float32) for label in labels}
            for block in self._passes.rows.blocks():
                rows = self.view.apply(block.features)
                rows *= factors[block.start : block.start + len(rows), None]
                for label in np.intersect1d(block.labels, labels):
                    chosen = rows[block.labels == label]
                    totals[label] += chosen.T @ chosen
            yield from totals.values()

    def _seen(self, sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
        seen = sums - np.outer(self._centre, counts)
        return seen if self.view.projection is None else self.view.projection.T @ seen

    def _clip_factors(self, clip_norm: float) -> np.ndarray:
        """min(1, C / |x|) for every seen row without its bias, 0 for rows that do not count."""
        norms = np.sqrt(np.maximum(np.square(self.norms) - self.view.bias**2, 0))
        clipped = np.divide(clip_norm, norms, out=np.ones_like(norms), where=norms > clip_norm)
        return clipped * self._factors


@functools.cache
def _gradient_step(loss: str) -> Callable[..., Any]:
    residual = residual_of(loss)

    @tf.function(reduce_retracing=True)
    def step(totals, features, labels, values, constants):  # type: ignore[no-untyped-def]
        by_kernel, by_offset = totals
        kernel, offset, clip_norm = constants
        scales, factors, norms = tf.unstack(values, axis=1)
        features = tf.cast(features, tf.float32)
        logits = tf.matmul(features, kernel) * scales[:, None] + offset
        targets = tf.one_hot(labels, tf.shape(kernel)[1])
        rest = residual(logits, targets)
        lengths = tf.norm(rest, axis=1) * factors * norms
        clipped = factors * tf.minimum(1.0, tf.math.divide_no_nan(clip_norm[0], lengths))
        # 0 / 0 is 0 above: a gradient of length 0 adds nothing either way.
        rest *= clipped[:, None]
        return (
            by_kernel + tf.matmul(features, rest * scales[:, None], transpose_a=True),
            by_offset + tf.reduce_sum(rest, axis=0),
        )

    return step


@functools.cache
def _class_step() -> Callable[..., Any]:
    @tf.function(reduce_retracing=True)
    def step(totals, features, labels, values, constants):  # type: ignore[no-untyped-def]
        sums, counts = totals
        scales, factors = tf.unstack(values, axis=1)
        targets = tf.one_hot(labels, tf.shape(sums)[1])
        features = tf.cast(features, tf.float32)
        return (
            sums + tf.matmul(features, targets * scales[:, None], transpose_a=True),
            counts + tf.reduce_sum(targets * factors[:, None], axis=0),
        )

    return step


@functools.cache
def _moment_step() -> Callable[..., Any]:
    @tf.function(reduce_retracing=True)
    def step(totals, features, labels, values, constants):  # type: ignore[no-untyped-def]
        (moment,) = totals
        (centre,) = constants
        scales, factors = tf.unstack(values, axis=1)
        features = tf.cast(features, tf.float32)
        seen = features * scales[:, None] - factors[:, None] * centre
        return (moment + tf.matmul(seen, seen, transpose_a=True),)

    return step
