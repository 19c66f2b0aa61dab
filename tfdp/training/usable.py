"""Whether there is anything to learn from: updates on nothing are paid for like all others."""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import keras
import tensorflow as tf

from tfdp.data import ArraySource, RecordSource

_ROWS, _NUMBERS = 64, 4_000_000  # of made-up outputs at a time


def check_targets(model: keras.Model, source: RecordSource, x: Any) -> None:
    """Raises if no target in an array can have a loss, such as labels that all begin at 5.

    One record with a usable target is enough to go on, and whether it has one decides nothing
    else. Losses that are not Keras's own are left alone: they may not suit made-up outputs.

    Args:
      model: A compiled, built model.
      source: The records.
      x: Inputs of two of them.
    """
    loss = model._private.loss
    if not isinstance(source, ArraySource) or loss.by_user:
        return
    symbols = keras.tree.map_structure(lambda t: keras.KerasTensor(t.shape, t.dtype.name), x)
    outputs = keras.src.backend.compute_output_spec(model, symbols, training=False)
    each = max(sum(math.prod(o.shape[1:]) for o in keras.tree.flatten(outputs)), 1)
    rows = max(1, min(_ROWS, _NUMBERS // each))
    for start in range(0, len(source), rows):
        indices = tf.range(start, min(start + rows, len(source)), dtype=tf.int64)
        _, y, weight, _ = source.fetch(indices, tf.constant(0, tf.int64))
        if y is None:
            return
        if any(leaf.dtype == tf.string for leaf in keras.tree.flatten(y)):
            raise TypeError("y holds text: the loss needs numbers, such as classes from 0 on.")
        made_up = keras.tree.map_structure(functools.partial(_halves, len(indices)), outputs)
        if not tf.reduce_all(tf.math.is_nan(loss(y, made_up, weight))):
            return
    shapes = keras.tree.map_structure(lambda o: tuple(o.shape[1:]), outputs)
    raise ValueError(
        f"Not one of the {len(source)} records has a usable target: classes must be integers from "
        f"0 on and below the width of the model's output (of shape {shapes} here), targets and "
        "sample weights must be numbers. Every update would be paid for and change nothing but by "
        "noise."
    )


def _halves(rows: int, output: keras.KerasTensor) -> tf.Tensor:
    """Made-up outputs on which every loss of Keras is a number."""
    return tf.fill([rows, *output.shape[1:]], tf.constant(0.5, output.dtype))


def warn_of_nothing_used(drawn_but_not_finite: int, unreadable: dict[str, int]) -> None:
    """Says that an epoch has used no example, to whoever trains and holds the data."""
    why = f"{drawn_but_not_finite} were drawn whose loss or gradient is not a finite number"
    if unreadable:
        why += f"; records that cannot be read, so far: {unreadable}"
    warnings.warn(
        f"No example was used in a whole epoch, and its updates were paid for: {why}. Look at "
        "labels (from 0 on, below the width of the output), inputs, sample weights and the model's "
        "weights for what is NaN or out of range.",
        stacklevel=2,
    )
