"""Whether records can be learned from and validated on: steps in vain are paid for too."""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.data import ArraySource, ExampleSource

_ROWS, _NUMBERS = 64, 4_000_000  # of made-up outputs at a time
_UNKNOWN = object()


def check_targets(model: keras.Model, source: ExampleSource, x: Any) -> None:
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
    outputs = _outputs(model, x)
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
        "sample weights must be numbers. Every step would be paid for and change nothing but by "
        "noise."
    )


def check_validation_fits(model: keras.Model, validation_data: Any) -> None:
    """Raises if the model or its loss cannot be run on records for validation.

    Keras would find out after the first epoch. Of data that do not say their shapes nothing is
    known before.

    Args:
      model: A compiled, built model.
      validation_data: Arrays as (x, y) or (x, y, sample_weight), or a ``tf.data.Dataset`` of such
        batches.
    """
    data = validation_data
    given = data.element_spec if isinstance(data, tf.data.Dataset) else data
    if not isinstance(given, list | tuple) or len(given) not in (2, 3):
        return
    x, y, sample_weight = keras.tree.map_structure(_one_row, (*given, None)[:3])
    if any(leaf is _UNKNOWN for leaf in keras.tree.flatten((x, y, sample_weight))):
        return
    try:
        outputs = _outputs(model, x)
        if not model._private.loss.by_user:
            made_up = keras.tree.map_structure(functools.partial(_halves, 1), outputs)
            model._private.loss(y, made_up, sample_weight)
    except (TypeError, ValueError, tf.errors.OpError) as error:
        inputs, targets = keras.tree.map_structure(lambda leaf: tuple(leaf.shape[1:]), (x, y))
        raise ValueError(
            f"validation_data: the model {model.name!r} and its loss cannot be run on x of shape "
            f"{inputs} and y of shape {targets}: {error}"
        ) from error


def _one_row(leaf: Any) -> Any:
    """Zeros like a row of an array, or like one of batches of that kind."""
    if leaf is None:
        return None
    if not isinstance(leaf, np.ndarray | tf.Tensor | tf.TensorSpec):
        return _UNKNOWN
    shape, dtype = tf.TensorShape(leaf.shape), tf.as_dtype(leaf.dtype)
    if not shape.rank or None in shape[1:]:
        return _UNKNOWN
    return tf.fill([1, *shape[1:]], "" if dtype == tf.string else tf.zeros([], dtype))


def _outputs(model: keras.Model, x: Any) -> Any:
    """What the model gives for such inputs, as symbols."""
    symbols = keras.tree.map_structure(lambda t: keras.KerasTensor(t.shape, t.dtype.name), x)
    return keras.src.backend.compute_output_spec(model, symbols, training=False)


def _halves(rows: int, output: keras.KerasTensor) -> tf.Tensor:
    """Made-up outputs on which every loss of Keras is a number."""
    return tf.fill([rows, *output.shape[1:]], tf.constant(0.5, output.dtype))


def warn_of_nothing_used(drawn_but_not_finite: int, unreadable: dict[str, int]) -> None:
    """Says that an epoch has used no example, to whoever trains and holds the data."""
    why = f"{drawn_but_not_finite} were drawn whose loss or gradient is not a finite number"
    if unreadable:
        why += f"; records that cannot be read, so far: {unreadable}"
    warnings.warn(
        f"No example was used in a whole epoch, and its steps were paid for: {why}. Look at "
        "labels (from 0 on, below the width of the output), inputs, sample weights and the model's "
        "weights for what is NaN or out of range.",
        stacklevel=2,
    )
