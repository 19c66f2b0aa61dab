"""Per-example gradients of one layer's weights, by mapping its call over examples.

The rest of the model stays in the single pass: only this call is differentiated once more, given
its inputs and the gradients of its outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common import global_state

from tfdp.clipping.examples import batch_of_one, map_examples, with_mask_of
from tfdp.clipping.layer_plan import Mapping
from tfdp.clipping.recording import Frame, Recorder, RecordingScope
from tfdp.clipping.rules.registry import Terms
from tfdp.clipping.terms import ExplicitTerm


def mapped_call(weights: list, state: list, compiled: bool) -> Callable[..., Any]:
    """Returns how a recorder makes calls that are mapped over examples.

    Args:
      weights: Values of the trainable variables.
      state: Values of the other variables.
      compiled: Whether XLA compiles the call.
    """

    def run(recorder, frame, mapping, call, args, kwargs):
        again = _CallAgain(recorder, mapping, call, args, kwargs, weights, state, compiled)
        outputs = again.outputs() if mapping.random else call(*args, **kwargs)
        outputs = keras.tree.map_structure(_apart, outputs)
        recorder.tap_all(_with_logits(outputs), again.terms)
        return outputs

    return run


class _CallAgain:
    """One call of a layer, as a function of the arguments of a single example."""

    def __init__(
        self,
        recorder: Recorder,
        mapping: Mapping,
        call: Callable,
        args: tuple,
        kwargs: dict,
        weights: list,
        state: list,
        compiled: bool,
    ):
        self._recorder = recorder
        self._mapping = mapping
        self._call = call
        self._arguments = (args, kwargs)
        self._weights, self._state = weights, state
        # Loops side by side have no form that XLA compiles.
        self._compiled = compiled and not mapping.loops
        self._frames: list[Frame] = list(recorder.frames)
        self._counts = dict(recorder.counts)
        # What surrounds a call in Keras: the training flag and the compute dtype.
        self._context = global_state.get_global_attribute("current_call_ctx")
        self._autocast = keras.src.backend.get_autocast_scope()
        leaves = [leaf for leaf in keras.tree.flatten(self._arguments) if tf.is_tensor(leaf)]
        self._batched = [leaf for leaf, own in zip(leaves, mapping.batched, strict=True) if own]
        self._masks = [keras.src.backend.get_keras_mask(leaf) for leaf in self._batched]

    def outputs(self) -> Any:
        """Makes the call example by example, with random numbers of each example's own."""

        def one(rows):
            outputs = self._one(rows, {})
            behind = enumerate(map(_logits, keras.tree.flatten(outputs)))
            logits = {i: found for i, found in behind if found is not None}
            return keras.tree.map_structure(lambda leaf: leaf[0], (outputs, logits))

        outputs, logits = map_examples(one, self._rows(), self._compiled)
        leaves = keras.tree.flatten(outputs)
        for i, found in logits.items():
            leaves[i]._keras_logits = found
        return outputs

    def terms(self, *gradients: tf.Tensor) -> Terms:
        """Yields the gradients of the call's weights, one by one for every example."""
        variables = [
            (variable, value)
            for variable, value in zip(self._recorder.forward.trainable, self._weights, strict=True)
            if id(variable) in self._mapping.weights
        ]
        # Tensors of their own: reads that other calls answer for stay out of the gradient.
        values = [tf.identity(value) for _, value in variables]

        def one(rows):
            rows, own = rows
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(values)
                watched = {id(v): value for (v, _), value in zip(variables, values, strict=True)}
                outputs = self._one(rows, watched)
            found = tape.gradient(
                _with_logits(outputs),
                values,
                output_gradients=[g[tf.newaxis] for g in own],
                unconnected_gradients="zero",
            )
            return [tf.convert_to_tensor(gradient) for gradient in found]

        found = map_examples(one, (self._rows(), list(gradients)), self._compiled)
        for (variable, _), gradient in zip(variables, found, strict=True):
            shape = [self._recorder.batch.mask.shape[0], *variable.shape]
            yield variable, ExplicitTerm(tf.ensure_shape(gradient, shape))

    def _rows(self) -> tuple:
        masks = [mask for mask in self._masks if mask is not None]
        return tf.range(tf.shape(self._recorder.batch.mask)[0]), self._batched, masks

    def _one(self, rows: tuple, watched: dict[int, tf.Tensor]) -> Any:
        """Makes the call for one example."""
        row, leaves, masks = rows
        fold = tf.random.experimental.stateless_fold_in
        key = self._frames[-1].key[1]  # another call of the layer draws other numbers
        seed = fold(fold(self._recorder.batch.seed, row), key)
        mapping = self._recorder.forward.mapping(self._weights, self._state, seed)
        args, kwargs = self._arguments_of_one(iter(leaves), iter(masks))
        recorder = self._recorder
        before = global_state.get_global_attribute("current_call_ctx")
        global_state.set_global_attribute("current_call_ctx", self._context)
        try:
            with (
                RecordingScope(recorder, mapping, initialize_variables=False),
                recorder.replaying(self._frames, self._counts, watched),
                keras.src.backend.AutocastScope(self._autocast and self._autocast.dtype),
            ):
                return self._call(*args, **kwargs)
        finally:
            global_state.set_global_attribute("current_call_ctx", before)

    def _arguments_of_one(self, leaves: Iterator, masks: Iterator) -> Any:
        """Puts one example's tensors in the place of the batch's, with the masks they carry."""
        batched = {id(leaf): mask for leaf, mask in zip(self._batched, self._masks, strict=True)}
        flags = iter(self._mapping.batched)

        def take(leaf):
            if not tf.is_tensor(leaf) or not next(flags):
                return leaf
            mask = None if batched[id(leaf)] is None else next(masks)
            return batch_of_one(next(leaves), mask)

        return keras.tree.map_structure(take, self._arguments)


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
