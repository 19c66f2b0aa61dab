"""Before anything is spent, the model is built on its data and must give a loss."""

from __future__ import annotations

import functools
import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.data import ArraySource, ExampleSource

_TARGETS, _NUMBERS = 64, 4_000_000  # tried at a time: examples, and numbers in their outputs
_UNKNOWN = object()


def build(model: keras.Model, loss: Any, source: ExampleSource) -> None:
    """Creates all variables of model, loss and metrics, from the shapes of a batch of two.

    Args:
      model: A compiled model.
      loss: Its loss, with one value per example.
      source: The examples.

    Raises:
      ValueError: Model, loss or metrics cannot be run on such examples, or none of them has a
        usable target.
    """
    x, y, _, _ = source.fetch(tf.zeros([2], tf.int64), tf.zeros([], tf.int64))
    with model.distribute_strategy.scope():
        try:
            # Without weights: they shape no variable, and Keras takes fewer forms of them.
            model._symbolic_build(data_batch=(x, y, None))
        except (TypeError, ValueError, tf.errors.OpError) as error:
            inputs, targets = keras.tree.map_structure(
                lambda leaf: None if leaf is None else tuple(leaf.shape[1:]), (x, y)
            )
            raise ValueError(
                f"The model {model.name!r}, its loss and metrics cannot be run on examples with x "
                f"of shape {inputs} and y of shape {targets}: {error}"
            ) from error
        if keras.tree.is_nested(y):  # several losses keep metrics, which are variables
            outputs = keras.tree.map_structure(tf.convert_to_tensor, model(x, training=False))
            loss(y, outputs)
    _check_targets(model, loss, source, x)


def _check_targets(model: keras.Model, loss: Any, source: ExampleSource, x: Any) -> None:
    """Raises if no target in an array can have a loss, such as labels that all begin at 5.

    Useless steps spend privacy too. One example with a usable target is enough to go on, and
    nothing else depends on whether it has one. Losses that are not Keras's own are not checked:
    synthetic outputs may not suit them.

    Args:
      model: A compiled, built model.
      loss: Its loss, with one value per example.
      source: The examples.
      x: Inputs of two of them.
    """
    if not isinstance(source, ArraySource) or loss.by_user:
        return
    outputs = _outputs(model, x)
    each = max(sum(math.prod(o.shape[1:]) for o in keras.tree.flatten(outputs)), 1)
    at_once = max(1, min(_TARGETS, _NUMBERS // each))
    for start in range(0, len(source), at_once):
        indices = tf.range(start, min(start + at_once, len(source)), dtype=tf.int64)
        _, y, weight, _ = source.fetch(indices, tf.constant(0, tf.int64))
        if y is None:
            return
        if any(leaf.dtype == tf.string for leaf in keras.tree.flatten(y)):
            raise TypeError("y holds text: the loss needs numbers, such as classes from 0 on.")
        synthetic = keras.tree.map_structure(functools.partial(_halves, len(indices)), outputs)
        if not tf.reduce_all(tf.math.is_nan(loss(y, synthetic, weight))):
            return
    shapes = keras.tree.map_structure(lambda o: tuple(o.shape[1:]), outputs)
    raise ValueError(
        f"None of the {len(source)} examples has a usable target: classes must be integers from 0 "
        f"on and below the width of the model's output (of shape {shapes} here), and targets and "
        "sample weights must be numbers. Every step would spend privacy and add nothing but noise."
    )


def check_validation_fits(model: keras.Model, loss: Any, validation_data: Any) -> None:
    """Raises if the model or its loss cannot be run on the data for validation.

    Nothing is known beforehand of data that do not say their shapes.

    Args:
      model: A compiled, built model.
      loss: Its loss, with one value per example.
      validation_data: Arrays as (x, y) or (x, y, sample_weight), or a ``tf.data.Dataset`` of such
        batches.
    """
    data = validation_data
    given = data.element_spec if isinstance(data, tf.data.Dataset) else data
    if not isinstance(given, list | tuple) or len(given) not in (2, 3):
        return
    x, y, sample_weight = keras.tree.map_structure(_one_example, (*given, None)[:3])
    if any(leaf is _UNKNOWN for leaf in keras.tree.flatten((x, y, sample_weight))):
        return
    try:
        outputs = _outputs(model, x)
        if not loss.by_user:
            loss(y, keras.tree.map_structure(functools.partial(_halves, 1), outputs), sample_weight)
    except (TypeError, ValueError, tf.errors.OpError) as error:
        inputs, targets = keras.tree.map_structure(lambda leaf: tuple(leaf.shape[1:]), (x, y))
        raise ValueError(
            f"validation_data: the model {model.name!r} and its loss cannot be run on x of shape "
            f"{inputs} and y of shape {targets}: {error}"
        ) from error


def _one_example(leaf: Any) -> Any:
    """Returns zeros like one example of an array, or of batches of that kind."""
    if leaf is None:
        return None
    if not isinstance(leaf, np.ndarray | tf.Tensor | tf.TensorSpec):
        return _UNKNOWN
    shape, dtype = tf.TensorShape(leaf.shape), tf.as_dtype(leaf.dtype)
    if not shape.rank or None in shape[1:]:
        return _UNKNOWN
    return tf.fill([1, *shape[1:]], "" if dtype == tf.string else tf.zeros([], dtype))


def _outputs(model: keras.Model, x: Any) -> Any:
    """Returns what the model gives for such inputs, as symbols."""
    symbols = keras.tree.map_structure(lambda t: keras.KerasTensor(t.shape, t.dtype.name), x)
    return keras.src.backend.compute_output_spec(model, symbols, training=False)


def _halves(count: int, output: keras.KerasTensor) -> tf.Tensor:
    """Returns synthetic outputs on which every loss of Keras is a number."""
    return tf.fill([count, *output.shape[1:]], tf.constant(0.5, output.dtype))
