"""The table of layer rules, and how to add to it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfdp.clipping.terms import Term

Terms = Iterable[tuple[keras.Variable, Term]]
Tap = Callable[[tf.Tensor, Callable[[tf.Tensor], Terms]], tf.Tensor]
Rule = Callable[..., Any]

_RULES: dict[type | str, Rule] = {}


def register_rule(layer_class: type[keras.layers.Layer] | str) -> Callable[[Rule], Rule]:
    """Registers how the single-pass engine clips the weights of a layer class.

    A rule runs in place of ``layer.call``. It computes the same outputs, and hands every
    intermediate whose gradient it needs to ``tap`` together with a function that turns this
    gradient into (weight, term) pairs. Every trainable weight that the layer reads must be
    covered. For a layer that scales its inputs, ``y = x * scale``::

        @tfdp.clipping.register_rule(Scale)
        def scale_rule(layer, call, tap, inputs):
            def terms(gradient):  # [B, T, D], like the outputs
                by_example = tf.reduce_sum(gradient * inputs, axis=1)
                yield layer.scale, tfdp.clipping.ExplicitTerm(by_example)

            return tap(call(inputs), terms)

    Args:
      layer_class: The class whose ``call`` the rule stands for, or its full dotted name. A
        subclass that overrides ``call`` is not covered by it.

    Returns:
      A decorator for ``rule(layer, call, tap, *args, **kwargs) -> outputs``.
    """

    def decorate(rule: Rule) -> Rule:
        _RULES[layer_class] = rule
        return rule

    return decorate


def rule_for(layer: keras.layers.Layer) -> Rule | None:
    """Returns the rule of the layer, or None where its ``call`` is not one with a rule."""
    for base in type(layer).__mro__:
        rule = _RULES.get(base) or _RULES.get(f"{base.__module__}.{base.__qualname__}")
        if rule is not None and type(layer).call is base.call:  # type: ignore[attr-defined]
            return rule
    return None


@contextlib.contextmanager
def replaced(target: Any, name: str, value: Any) -> Iterator[None]:
    """Sets an attribute for the time of the block, past Keras's attribute tracking."""
    missing = object()
    before = target.__dict__.get(name, missing)
    object.__setattr__(target, name, value)
    try:
        yield
    finally:
        if before is missing:
            object.__delattr__(target, name)
        else:
            object.__setattr__(target, name, before)


def at_least_float32(tensor: tf.Tensor) -> tf.Tensor:
    """Casts half precision up: norms and sums are formed in float32 (or float64) only."""
    return tensor if tensor.dtype == tf.float64 else tf.cast(tensor, tf.float32)


def as_positions(tensor: tf.Tensor) -> tf.Tensor:
    """Brings ``[B, ..., D]`` to ``[B, T, D]``, in at least float32."""
    tensor = at_least_float32(tensor)
    positions = _positions(tensor)
    if tensor.shape.rank == 3:
        return tensor
    return tf.reshape(tensor, [-1, positions, tensor.shape[-1]])


def unbroadcast(gradient: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
    """Sums ``[B, ...]`` to ``[B, *shape]``: undoes the broadcasting of a weight of that shape."""
    gradient = at_least_float32(gradient)
    extra = gradient.shape.rank - 1 - len(shape)
    gradient = tf.reduce_sum(gradient, axis=list(range(1, 1 + extra)))
    ones = [i + 1 for i, size in enumerate(shape) if size == 1]
    return tf.reduce_sum(gradient, axis=ones, keepdims=True)


def lora_factors(layer: keras.layers.Layer, name: str) -> tuple[tf.Tensor, tf.Tensor, float]:
    """Returns (a, b, scale): the layer adds ``scale * a @ b`` to its frozen weight."""
    a, b = (
        at_least_float32(keras.ops.convert_to_tensor(getattr(layer, f"lora_{name}_{factor}")))
        for factor in "ab"
    )
    return a, b, layer.lora_alpha / layer.lora_rank


def _positions(tensor: tf.Tensor) -> int:
    count = 1
    for size in tensor.shape[1:-1]:
        if size is None:
            raise ValueError(
                f"Per-example clipping needs static shapes beyond the batch axis; got "
                f"{tensor.shape}. Pad the inputs to a fixed size."
            )
        count *= size
    return count
