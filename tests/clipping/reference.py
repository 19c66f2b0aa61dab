"""What the engines must equal: a plain loop over single examples in float64."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.clipping import ClippedSum, clipped_gradient_sum

squared_error = keras.losses.MeanSquaredError()
class_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@dataclasses.dataclass
class Reference:
    """Per-example gradients, one array ``[B, *shape]`` for every trainable variable."""

    gradients: list[np.ndarray]
    losses: np.ndarray

    @property
    def squared_norms(self) -> np.ndarray:
        return np.stack([(g**2).reshape(len(g), -1).sum(1) for g in self.gradients])

    @property
    def norms(self) -> np.ndarray:
        return np.sqrt(self.squared_norms.sum(0))

    def clipped_sums(self, clip_norm: float, rows: Sequence[int] | None = None) -> list[np.ndarray]:
        factors = np.minimum(1, clip_norm / np.maximum(self.norms, 1e-300))
        rows = range(len(factors)) if rows is None else rows
        return [sum(factors[i] * g[i] for i in rows) for g in self.gradients]


def twins(build: Callable[[], keras.Model]) -> tuple[keras.Model, keras.Model]:
    """Returns the model in float32 and in float64, with the same weights."""
    model = build()
    with policy("float64"):
        exact = build()
    exact.set_weights(model.get_weights())
    return model, exact


class policy:
    """Within the block, layers are built with this dtype policy."""

    def __init__(self, name: str):
        self._name = name

    def __enter__(self) -> None:
        self._before = keras.config.dtype_policy()
        keras.config.set_dtype_policy(self._name)

    def __exit__(self, *_: Any) -> None:
        keras.config.set_dtype_policy(self._before)


def rows_of(fields: Any, rows: Any) -> Any:
    """Takes rows of nested arrays, floating point as float64."""

    def take(leaf):
        leaf = np.asarray(leaf)
        return tf.constant(leaf[rows].astype("float64" if leaf.dtype.kind == "f" else leaf.dtype))

    return keras.tree.map_structure(take, fields)


def brute_force(exact: keras.Model, loss: Callable, x: Any, y: Any) -> Reference:
    """Differentiates ``loss(y, model(x))`` for batches of a single example, in float64."""

    @tf.function(autograph=False)
    def gradient(x, y):
        with tf.GradientTape() as tape:
            outputs = exact(x, training=True) if exact._call_has_training_arg else exact(x)
            value = tf.cast(loss(y, outputs), tf.float64)
        weights = [v.value for v in exact.trainable_variables]
        found = tape.gradient(value, weights, unconnected_gradients="zero")
        return value, [tf.convert_to_tensor(g) for g in found]

    count = len(keras.tree.flatten(x)[0])
    singles = [gradient(rows_of(x, [i]), rows_of(y, [i])) for i in range(count)]
    gradients = [np.stack(g) for g in zip(*(g for _, g in singles), strict=True)]
    return Reference(gradients, np.array([float(value) for value, _ in singles]))


def assert_equal(found: ClippedSum, reference: Reference, clip_norm: float, rtol=1e-5) -> None:
    """Norms by variable and in total, losses and clipped sums agree, relative to their size."""
    np.testing.assert_allclose(found.losses, reference.losses, rtol=rtol)
    np.testing.assert_allclose(found.norms, reference.norms, rtol=rtol)
    scale = reference.norms.max() ** 2
    np.testing.assert_allclose(
        found.squared_norms, reference.squared_norms, rtol=10 * rtol, atol=rtol * scale
    )
    for ours, exact in zip(found.gradients, reference.clipped_sums(clip_norm), strict=True):
        size = max(np.linalg.norm(exact), 0.01 * clip_norm)  # some weights get none
        assert np.linalg.norm(ours - exact) <= rtol * size


def check(
    build: Callable[[], keras.Model],
    x: Any,
    y: Any,
    loss: Any = squared_error,
    engines: Sequence[str] = ("single_pass", "vectorized"),
    **arguments: Any,
) -> ClippedSum:
    """Every engine equals the loop, with the clip norm at the median: half are clipped."""
    model, exact = twins(build)
    reference = brute_force(exact, loss, x, y)
    clip_norm = float(np.median(reference.norms))
    arguments = {"jit_compile": False, **arguments}
    for engine in engines:
        found = clipped_gradient_sum(model, loss, x, y, clip_norm, engine=engine, **arguments)
        assert_equal(found, reference, clip_norm)
    return found
