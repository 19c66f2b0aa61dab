"""Made-up examples, and weights that let them through to the outputs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.clipping.examples import Batch

_SEED = 20210607
# Where floating-point numbers are drawn from, in turn, and the lesser of two ids. Any vocabulary
# has 0 and 1, but 0 may be masked.
_RANGES = ((0.0, 2.0, 0), (0.0, 1.0, 1), (1.0, 2.0, 0), (-1.0, 1.0, 1))
# A weight all of whose entries are smaller hides what comes before it.
_FAINT = 1e-3


def made_up_pairs(batch: Batch, examples: Any = None) -> Iterator[tuple[Batch, Batch]]:
    """Yields pairs of batches that differ in every entry of their first row, and there only.

    Args:
      batch: Gives structure, shapes and dtypes.
      examples: Public (x, y) or (x, y, sample_weight) to use instead of random numbers: at least
        two rows, which differ.
    """
    if examples is not None:
        yield _given(batch, examples)
        return
    for numbers in _RANGES:
        yield _drawn(batch, *numbers, other=False), _drawn(batch, *numbers, other=True)


def with_faint_weights_raised(weights: list[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the weights, those that are all but zero replaced by noise.

    Layers that start out at zero, such as heads, LoRA factors and layer scales, would make
    outputs the same whatever happens before them.
    """
    return [_raised(value, seed) for seed, value in enumerate(weights)]


def _raised(value: tf.Tensor, seed: int) -> tf.Tensor:
    if tf.reduce_max(tf.abs(value)) >= _FAINT:
        return value
    deviation = 1 / math.sqrt(math.prod(value.shape[:-1])) if value.shape.rank > 1 else 0.1
    noise = tf.random.stateless_normal(value.shape, [_SEED, seed], stddev=deviation)
    return tf.cast(noise, value.dtype)


def _drawn(batch: Batch, low: float, high: float, lesser_id: int, *, other: bool) -> Batch:
    """Draws rows of the batch's kind; ``other`` moves the first by half the range.

    Only inputs begin at ``lesser_id``: targets are classes, of which there may be two.
    """
    fields = (batch.x, batch.y, batch.sample_weight)
    rows = _rows_unlike_any_axis(fields)
    generator = np.random.default_rng(_SEED)

    def draw(leaf):
        if leaf is None:
            return None
        share = generator.uniform(size=(rows, *leaf.shape[1:]))
        if other:
            share[:1] = (share[:1] + 0.5) % 1
        if leaf.dtype == tf.string:
            values = np.where(share < 0.5, b"a", b"b")
        elif leaf.dtype.is_floating or leaf.dtype.is_complex:
            values = low + (high - low) * share
        else:
            values = share < 0.5  # ids and classes that any vocabulary has, 0 and 1
            if not lesser_id:
                _leave_something_unmasked(values)
        return tf.constant(values, leaf.dtype) if leaf.dtype == tf.string else _cast(values, leaf)

    x, y, sample_weight = keras.tree.map_structure(draw, fields)
    x = keras.tree.map_structure(lambda ids: _moved(ids, lesser_id), x)
    return Batch(x, y, sample_weight, tf.ones([rows], tf.bool), tf.constant([1, 2]))


def _moved(leaf: tf.Tensor, by: int) -> tf.Tensor:
    return leaf + tf.cast(by, leaf.dtype) if leaf.dtype.is_integer else leaf


def _leave_something_unmasked(ids: np.ndarray) -> None:
    """Sets the first entry of rows of zeros only to 1: zero often stands for padding."""
    if ids.ndim > 1 and ids.size:
        rows = ids.reshape(len(ids), -1)
        rows[:, 0] |= ~rows.any(axis=1)


def _cast(values: np.ndarray, leaf: Any) -> tf.Tensor:
    return tf.cast(tf.constant(values), leaf.dtype)


def _given(batch: Batch, examples: Any) -> tuple[Batch, Batch]:
    fields = (batch.x, batch.y, batch.sample_weight)
    if not isinstance(examples, list | tuple):
        raise TypeError(
            "public_examples must be (x, y) or (x, y, sample_weight), of records that are not "
            f"private, got a {type(examples).__name__}."
        )
    given = tuple(examples)
    examples = (*given, *[None] * (3 - len(given)))
    try:
        keras.tree.assert_same_structure(*map(_with_absent_marked, (fields, examples)))
    except ValueError as error:
        raise ValueError(
            "public_examples must be (x, y), or (x, y, sample_weight) if there are weights, nested "
            f"like what the model is trained on, got {len(given)} parts."
        ) from error
    counts = {len(leaf) for leaf in keras.tree.flatten(examples) if leaf is not None}
    if len(counts) > 1:
        raise ValueError(f"public_examples: arrays must have the same rows, got {sorted(counts)}.")
    count = counts.pop()
    if count < 2:
        raise ValueError(f"public_examples holds {count} row(s): two or more are needed.")
    rows = _rows_unlike_any_axis(fields)
    order = [i % count for i in range(rows)]

    def take(order):
        def rows_of(leaf, spec):
            return None if leaf is None else _cast(np.asarray(leaf)[order], spec)

        x, y, sample_weight = keras.tree.map_structure(rows_of, examples, fields)
        return Batch(x, y, sample_weight, tf.ones([rows], tf.bool), tf.constant([1, 2]))

    return take(order), take([1, *order[1:]])


def _with_absent_marked(nested: Any) -> Any:
    """Returns the structure with parts that are not there of another shape than leaves."""
    return keras.tree.map_structure(lambda leaf: () if leaf is None else 0, nested)


def _rows_unlike_any_axis(fields: Any) -> int:
    leaves = [leaf for leaf in keras.tree.flatten(fields) if leaf is not None]
    taken = {size for leaf in leaves for size in leaf.shape}
    return next(n for n in itertools.count(3) if n not in taken)
