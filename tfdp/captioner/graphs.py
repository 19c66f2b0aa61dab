"""Compiled graphs that a model keeps for its own eager callers."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import keras
import tensorflow as tf


def run_as_graph(
    model: keras.Model, key: Hashable, function: Callable[..., Any], *tensors: Any
) -> Any:
    """Calls `function(*tensors)`, as one graph even where TensorFlow runs eagerly.

    Args:
        model: the owner of the graph; the graph lives as long as it does.
        key: tells this function and the Python values that it closes over from all others.
        function: takes and gives tensors.
        *tensors: its arguments.
    """
    if not tf.executing_eagerly():
        return function(*tensors)
    # Kept out of Keras's attribute tracking, which would try to save it with the model.
    graphs = model.__dict__.setdefault("_graphs", {})
    if key not in graphs:
        graphs[key] = tf.function(function, autograph=False, reduce_retracing=True)
    return graphs[key](*tensors)
