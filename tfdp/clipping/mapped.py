"""Per-example gradients by mapping over examples: of the whole model, or of one layer's call."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common import global_state

from tfdp.clipping.examples import Batch, batch_of_one, map_examples, with_mask_of
from tfdp.clipping.factors import PerExampleGradients
from tfdp.clipping.forward import Forward
from tfdp.clipping.layer_plan import Mapping
from tfdp.clipping.recording import Frame, Recorder, RecordingScope
from tfdp.clipping.rules.registry import Terms
from tfdp.clipping.terms import ExplicitTerm, Term


def vectorized(
    forward: Forward, weights: list, state: list, batch: Batch, compiled: bool = True
) -> PerExampleGradients:
    """Returns the gradients of every example for the whole model, formed explicitly.

    It holds B copies of the gradient: the reference for the single pass, and the exact fallback for
    models in which examples cannot be told apart call by call.

    Args:
      forward: The model and its loss.
      weights: Values of ``forward.trainable``.
      state: Values of ``forward.state``.
      batch: Examples of static shape.
      compiled: Whether XLA compiles the call; see ``map_examples``.
    """
    indices = tf.range(tf.shape(batch.mask)[0])
    fields = (batch.x, batch.y, batch.sample_weight)
    leaves = [leaf for leaf in keras.tree.flatten(fields) if leaf is not None]

    def one(index_and_leaves):
        index, *own = index_and_leaves
        own = iter([leaf[tf.newaxis] for leaf in own])
        x, y, weight = keras.tree.map_structure(
            lambda leaf: None if leaf is None else next(own), fields
        )
        seed = tf.random.experimental.stateless_fold_in(batch.seed, index)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            with keras.StatelessScope(forward.mapping(weights, state, seed)):
                loss, outputs = forward.losses(x, y, weight)
            scaled = loss * tf.cast(forward.loss_scale, loss.dtype)
        gradients = tape.gradient(scaled, weights, unconnected_gradients="zero")
        outputs = keras.tree.map_structure(lambda leaf: leaf[0], outputs)
        return loss[0], outputs, [tf.convert_to_tensor(gradient) for gradient in gradients]

    losses, outputs, gradients = map_examples(one, [indices, *leaves], compiled)
    count = batch.mask.shape[0]
    terms: list[Term | None] = [
        ExplicitTerm(tf.ensure_shape(gradient, [count, *gradient.shape[1:]]))
        for gradient in gradients
    ]
    return PerExampleGradients(terms, tf.where(batch.mask, losses, 0), outputs)


def mapped_call(weights: list, state: list, compiled: bool) -> Callable[..., Any]:
    """Returns how a recorder makes calls that are mapped over examples.

    The rest of the model stays in the single pass: only the call is differentiated once more, given
    its inputs and the gradients of its outputs.

    Args:
      weights: Values of the trainable variables.
      state: Values of the other variables.
      compiled: Whether XLA compiles the call.
    """

    def run(recorder, frame, mapping, call, args, kwargs):
        again = _CallAgain(
            recorder,
            mapping,
            call,
            (args, kwargs),
            (weights, state),
            compiled and not mapping.loops,  # loops side by side have no form that XLA compiles
            tuple(recorder.frames),
            dict(recorder.counts),
        )
        outputs = again.outputs() if mapping.random else call(*args, **kwargs)
        outputs = keras.tree.map_structure(_apart, outputs)
        recorder.tap_all(_with_logits(outputs), again.terms)
        return outputs

    return run


@dataclasses.dataclass(frozen=True)
class _CallAgain:
    """One call of a layer, as a function of the arguments of a single example.

    Attributes:
      recorder: Has recorded the call.
      mapping: The plan's for the call.
      call: The layer's own.
      arguments: (args, kwargs) of the whole batch.
      values: Values of the trainable variables, and of the others.
      compiled: Whether XLA compiles what is mapped.
      frames: The calls that were running, this one innermost.
      counts: How often each layer had been called.
      context: What surrounds a call in Keras, such as the training flag.
      autocast: The scope of the compute dtype.
    """

    recorder: Recorder
    mapping: Mapping
    call: Callable
    arguments: tuple
    values: tuple[list, list]
    compiled: bool
    frames: tuple[Frame, ...]
    counts: dict[int, int]
    context: Any = dataclasses.field(
        default_factory=lambda: global_state.get_global_attribute("current_call_ctx")
    )
    autocast: Any = dataclasses.field(default_factory=keras.src.backend.get_autocast_scope)

    @functools.cached_property
    def _batched(self) -> list[tf.Tensor]:
        """The tensors among the arguments that lead with the batch axis."""
        leaves = [leaf for leaf in keras.tree.flatten(self.arguments) if tf.is_tensor(leaf)]
        return [leaf for leaf, own in zip(leaves, self.mapping.batched, strict=True) if own]

    @functools.cached_property
    def _masks(self) -> list[tf.Tensor | None]:
        return [keras.src.backend.get_keras_mask(leaf) for leaf in self._batched]

    def outputs(self) -> Any:
        """Makes the call example by example, with random numbers of each example's own."""

        def one(example):
            outputs = self._one(example, {})
            behind = enumerate(map(_logits, keras.tree.flatten(outputs)))
            logits = {i: found for i, found in behind if found is not None}
            return keras.tree.map_structure(lambda leaf: leaf[0], (outputs, logits))

        outputs, logits = map_examples(one, self._examples(), self.compiled)
        leaves = keras.tree.flatten(outputs)
        for i, found in logits.items():
            leaves[i]._keras_logits = found
        return outputs

    def terms(self, *gradients: tf.Tensor) -> Terms:
        """Yields the gradients of the call's weights, one by one for every example."""
        weights, _ = self.values
        variables = [
            (variable, value)
            for variable, value in zip(self.recorder.forward.trainable, weights, strict=True)
            if id(variable) in self.mapping.weights
        ]
        # Tensors of their own: reads that other calls answer for stay out of the gradient.
        values = [tf.identity(value) for _, value in variables]

        def one(example_and_gradients):
            example, own = example_and_gradients
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(values)
                watched = {id(v): value for (v, _), value in zip(variables, values, strict=True)}
                outputs = self._one(example, watched)
            found = tape.gradient(
                _with_logits(outputs),
                values,
                output_gradients=[g[tf.newaxis] for g in own],
                unconnected_gradients="zero",
            )
            return [tf.convert_to_tensor(gradient) for gradient in found]

        found = map_examples(one, (self._examples(), list(gradients)), self.compiled)
        for (variable, _), gradient in zip(variables, found, strict=True):
            shape = [self.recorder.batch.mask.shape[0], *variable.shape]
            yield variable, ExplicitTerm(tf.ensure_shape(gradient, shape))

    def _examples(self) -> tuple:
        """Returns what differs between examples: index, arguments and their Keras masks."""
        masks = [mask for mask in self._masks if mask is not None]
        return tf.range(tf.shape(self.recorder.batch.mask)[0]), self._batched, masks

    def _one(self, example: tuple, watched: dict[int, tf.Tensor]) -> Any:
        """Makes the call for one example."""
        index, leaves, masks = example
        recorder = self.recorder
        fold = tf.random.experimental.stateless_fold_in
        key = self.frames[-1].key[1]  # another call of the layer draws other numbers
        seed = fold(fold(recorder.batch.seed, index), key)
        mapping = recorder.forward.mapping(*self.values, seed)
        args, kwargs = self._arguments_of_one(iter(leaves), iter(masks))
        before = global_state.get_global_attribute("current_call_ctx")
        global_state.set_global_attribute("current_call_ctx", self.context)
        try:
            with (
                RecordingScope(recorder, mapping, initialize_variables=False),
                recorder.replaying(self.frames, self.counts, watched),
                keras.src.backend.AutocastScope(self.autocast and self.autocast.dtype),
            ):
                return self.call(*args, **kwargs)
        finally:
            global_state.set_global_attribute("current_call_ctx", before)

    def _arguments_of_one(self, leaves: Iterator, masks: Iterator) -> Any:
        """Puts one example's tensors in the place of the batch's, with the masks they carry."""
        batched = {id(leaf): mask for leaf, mask in zip(self._batched, self._masks, strict=True)}
        flags = iter(self.mapping.batched)

        def take(leaf):
            if not tf.is_tensor(leaf) or not next(flags):
                return leaf
            mask = None if batched[id(leaf)] is None else next(masks)
            return batch_of_one(next(leaves), mask)

        return keras.tree.map_structure(take, self.arguments)


def _apart(leaf: Any) -> Any:
    """Returns an output as a tensor of its own, so that its gradient is the one from outside.

    One output may be computed from another, or be the same tensor: a recurrent cell returns its
    outputs as its state. Gradients of the call's own tensors would count what is shared twice.
    """
    if not _has_gradient(leaf):
        return leaf
    apart = with_mask_of(leaf, tf.identity(leaf))
    logits = _logits(leaf)
    if logits is not None:
        apart._keras_logits = tf.identity(logits)
    return apart


def _with_logits(outputs: Any) -> list[tf.Tensor]:
    """Returns all outputs that have gradients, and the logits behind those that have them."""
    leaves = [leaf for leaf in keras.tree.flatten(outputs) if _has_gradient(leaf)]
    return [*leaves, *(logits for logits in map(_logits, leaves) if logits is not None)]


def _logits(leaf: Any) -> tf.Tensor | None:
    """Returns that from which Keras computes losses of probabilities."""
    return getattr(leaf, "_keras_logits", None)


def _has_gradient(leaf: Any) -> bool:
    return tf.is_tensor(leaf) and leaf.dtype.is_floating
