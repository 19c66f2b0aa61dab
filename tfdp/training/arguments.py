"""Arguments of compile and fit that Keras would stumble over later, and say less about."""

from __future__ import annotations

import numbers
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp import checks


def check_counts(least: int = 1, **values: Any) -> None:
    """Raises for what is neither None nor a whole number of at least ``least``."""
    for name, value in values.items():
        if value is not None:
            checks.whole(name, value, least, or_else="None")


def text_as_tensors(validation_data: Any) -> Any:
    """Returns the same with NumPy's text, which ``x`` may hold too, as Keras evaluates it."""
    if not isinstance(validation_data, dict | list | tuple):
        return validation_data
    return keras.tree.map_structure(
        lambda leaf: tf.constant(leaf) if _is_text(leaf) else leaf, validation_data
    )


def _is_text(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.dtype.kind in "SU"


def epochs_to_validate(frequency: Any) -> int | list[int]:
    """Returns ``validation_freq`` as Keras takes it: every so many epochs, or a list of epochs.

    Keras would find out after the first epoch that it is neither.
    """
    if isinstance(frequency, list | tuple):
        return [checks.positive_int("each of validation_freq", epoch) for epoch in frequency]
    return checks.whole("validation_freq", frequency, least=1, or_else="a list of epochs")


def check_callbacks(callbacks: Any) -> None:
    """Raises for what is no callback."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return
    for callback in keras.tree.flatten(callbacks or []):
        if not isinstance(callback, keras.callbacks.Callback):
            raise TypeError(
                f"callbacks holds {callback!r}: expected objects of keras.callbacks.Callback."
            )


def check_preprocessor(model: keras.Model) -> None:
    """Raises for a model of KerasHub that would preprocess what it is trained on."""
    if getattr(model, "preprocessor", None) is not None:
        raise ValueError(
            f"The model {model.name!r} has a preprocessor, which fit does not run: it draws its "
            "records by itself. Preprocess them first, x, y, sample_weight = "
            "model.preprocessor(x, y), and set model.preprocessor = None for the training."
        )


def check_validation(validation_data: Any) -> None:
    """Raises where Keras would find out after the first epoch, which has been paid for.

    Raises:
      TypeError: It holds no records.
      ValueError: There are no targets, or numbers of rows differ.
    """
    if isinstance(validation_data, str | bytes | numbers.Number):
        raise TypeError(
            "validation_data must be (x, y), (x, y, sample_weight), a tf.data.Dataset or a "
            f"ExampleSource, got {validation_data!r}."
        )
    arrays = isinstance(validation_data, dict | list | tuple) or hasattr(validation_data, "shape")
    if not arrays:  # a data set, a loader, a generator, or None
        return
    parts = validation_data if isinstance(validation_data, list | tuple) else (validation_data,)
    if len(parts) not in (2, 3) or parts[1] is None:
        raise ValueError(
            "validation_data must be (x, y), (x, y, sample_weight), a tf.data.Dataset or a "
            f"ExampleSource, got a {type(validation_data).__name__} without targets or of "
            f"{len(parts)} parts."
        )
    named = dict(zip(("x", "y", "sample_weight"), parts, strict=False))
    rows = {
        ".".join(map(str, path)): len(leaf)
        for path, leaf in keras.tree.flatten_with_path(named)
        if getattr(leaf, "shape", ())
    }
    if len(set(rows.values())) > 1:
        raise ValueError(f"validation_data: arrays must have the same number of rows, got {rows}.")
