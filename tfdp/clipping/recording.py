"""Runs a model and keeps, for every use of a weight, what its per-example gradient needs."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence

import keras
import tensorflow as tf

from tfdp.clipping.rules import rule_for
from tfdp.clipping.rules.registry import Rule, Terms, replaced


class Recorder:
    """The tapped intermediates of one forward pass, and the weights that escaped the rules.

    Attributes:
      taps: Pairs of (intermediate, function from its gradient to (weight, term) pairs).
      uncovered: Paths of trainable weights read where no rule saw it.
    """

    def __init__(self, model: keras.Model, tape: tf.GradientTape):
        self.taps: list[tuple[tf.Tensor, Callable[[tf.Tensor], Terms]]] = []
        self.uncovered: dict[str, str] = {}
        self._tape = tape
        self._layers = trainable_leaves(model)
        self._owner = {id(v): layer for layer in self._layers for v in own_weights(layer)}
        self._trainable = {id(v): v for v in model.trainable_variables}
        self._running: list[keras.layers.Layer] = []

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Within the block, every layer with a rule runs through it."""
        with contextlib.ExitStack() as stack:
            for layer in self._layers:
                rule = rule_for(layer)
                if rule is not None:
                    wrapped = self._wrap(layer, layer.call, rule)
                    stack.enter_context(replaced(layer, "call", wrapped))
            yield

    def note_read(self, variable: keras.Variable) -> None:
        """Notes a read of a variable; one outside its own layer's rule is not covered."""
        if id(variable) not in self._trainable:
            return
        owner = self._owner.get(id(variable))
        if owner is None or not self._running or self._running[-1] is not owner:
            where = "outside any layer" if owner is None else _describe(owner)
            self.uncovered.setdefault(variable.path, where)

    def _wrap(self, layer: keras.layers.Layer, call: Callable, rule: Rule) -> Callable:
        @functools.wraps(call)
        def wrapped(*args, **kwargs):
            self._running.append(layer)
            try:
                return rule(layer, call, self._tap, *args, **kwargs)
            finally:
                self._running.pop()

        return wrapped

    def _tap(self, tensor: tf.Tensor, terms: Callable[[tf.Tensor], Terms]) -> tf.Tensor:
        self._tape.watch(tensor)
        self.taps.append((tensor, terms))
        return tensor


class RecordingScope(keras.StatelessScope):
    """Stateless scope that reports every read of a variable to a recorder."""

    def __init__(self, state_mapping: Sequence, recorder: Recorder):
        super().__init__(state_mapping=state_mapping)
        self._recorder = recorder

    def get_current_value(self, variable):
        self._recorder.note_read(variable)
        return super().get_current_value(variable)


def own_weights(layer: keras.layers.Layer) -> list[keras.Variable]:
    """Returns the trainable weights that the layer itself created, not those of sublayers."""
    return list(layer._trainable_variables) if layer.trainable else []


def trainable_leaves(model: keras.Model) -> list[keras.layers.Layer]:
    """Returns the layers that own trainable weights, each once."""
    seen: dict[int, keras.layers.Layer] = {}
    for layer in model._flatten_layers(include_self=True, recursive=True):
        if own_weights(layer):
            seen.setdefault(id(layer), layer)
    return list(seen.values())


def _describe(layer: keras.layers.Layer) -> str:
    return f"{type(layer).__name__} {layer.name!r}"
