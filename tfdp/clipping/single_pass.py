"""Per-example gradients of all weights from one forward and one backward pass.

The backward pass stops at the layers' outputs. A layer's input and the gradient of its output
hold every example's weight gradient in factored form, so neither a second backward pass nor the
gradients themselves are needed: norms and clipped sum come from the same recorded pairs, the
book-keeping of Bu et al. 2023, "Differentially Private Optimization on Large Model at Small Cost".
"""

from __future__ import annotations

import functools
from typing import Any

import keras
import tensorflow as tf

from tfdp.clipping.examples import Batch, with_mask_of
from tfdp.clipping.factors import PerExampleGradients
from tfdp.clipping.forward import Forward
from tfdp.clipping.layer_plan import Plan
from tfdp.clipping.mapped import mapped_call
from tfdp.clipping.recording import Recorder, RecordingScope
from tfdp.clipping.terms import Term, merge

_PROBABILITIES = {"Softmax": tf.nn.softmax, "Sigmoid": tf.sigmoid}


def single_pass(
    forward: Forward,
    weights: list,
    state: list,
    batch: Batch,
    plan: Plan,
    compiled: bool,
    second_pass: bool = False,
) -> PerExampleGradients:
    """Returns per-example gradients from one forward and one backward pass.

    Args:
      forward: The model and its loss.
      weights: Values of ``forward.trainable``.
      state: Values of ``forward.state``.
      batch: Examples of static shape.
      plan: How every call is handled; see ``survey``.
      compiled: Whether XLA compiles the call.
      second_pass: Whether to offer sums by a second backward pass.
    """
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        if second_pass:
            tape.watch(weights)
        mapped = mapped_call(weights, state, compiled)
        recorder = Recorder(forward, plan, batch, tape.watch, mapped)
        scope = RecordingScope(recorder, forward.mapping(weights, state, batch.seed))
        with scope, recorder.recording():
            outputs = forward.outputs(batch.x)
            predictions = outputs
            if compiled:
                predictions = keras.tree.map_structure(
                    lambda leaf: _gradient_formed_once(leaf, batch.mask), outputs
                )
            losses = forward.loss_of(batch.y, predictions, batch.sample_weight, compiled)
        losses = tf.where(batch.mask, losses, 0)
    # Examples do not mix, so the gradient of the sum holds each example's own.
    tapped = [tensor for tap in recorder.taps for tensor in tap.tensors]
    scales = tf.fill(losses.shape, tf.cast(forward.loss_scale, losses.dtype))
    gradients = iter(tape.gradient(losses, tapped, output_gradients=scales))

    again = functools.partial(weighted_sums, tape, losses, weights)
    found: dict[int, list[Term]] = {id(v): [] for v in forward.trainable}
    for tap in recorder.taps:
        own = [next(gradients) for _ in tap.tensors]
        if all(gradient is None for gradient in own):  # outputs that the loss does not use
            continue
        own = [_of_shape(*pair) for pair in zip(tap.tensors, own, strict=True)]
        for variable, term in tap.terms(*own):
            if id(variable) in found:
                found[id(variable)].append(term)
    merged = [merge(found[id(v)]) if found[id(v)] else None for v in forward.trainable]
    return PerExampleGradients(merged, losses, outputs, again if second_pass else None)


def weighted_sums(
    tape: tf.GradientTape, losses: tf.Tensor, weights: list, factors: tf.Tensor
) -> list[tf.Tensor]:
    """Returns the sums of the examples' gradients, each times its factor, by a backward pass.

    Args:
      tape: Has watched the weights.
      losses: ``[B]``.
      weights: Values of the trainable variables.
      factors: ``[B]``.
    """
    factors = tf.cast(factors, losses.dtype)
    sums = tape.gradient(losses, weights, output_gradients=factors, unconnected_gradients="zero")
    return [tf.convert_to_tensor(total) for total in sums]  # a table's may be sparse


def _of_shape(tensor: tf.Tensor, gradient: Any) -> tf.Tensor:
    """Returns the gradient of a tensor in the shape of it, which TensorFlow may have lost."""
    if gradient is None:
        return tf.zeros(tensor.shape, tensor.dtype)
    gradient = tf.convert_to_tensor(gradient)
    known = gradient.shape.is_fully_defined()
    return gradient if known else tf.ensure_shape(gradient, tensor.shape)


def _gradient_formed_once(outputs: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Returns the same outputs, with a gradient that XLA keeps in memory.

    Else it would form the gradient of, say, logits over a whole vocabulary anew for every product
    with it. Divisions are what XLA does not repeat.
    """
    if not tf.is_tensor(outputs) or not outputs.dtype.is_floating or outputs.shape.rank < 3:
        return outputs
    one = tf.maximum(tf.reduce_max(tf.cast(mask, outputs.dtype)), 1)  # which XLA cannot tell

    @tf.custom_gradient
    def formed_once(tensor):
        return tf.identity(tensor), lambda gradient: gradient / one

    # Keras computes losses of probabilities from the logits behind them, which it takes from an
    # attribute, or from the operation that the probabilities come from.
    logits = getattr(outputs, "_keras_logits", None)
    operation = getattr(outputs, "op", None)  # there is none where functions run eagerly
    if logits is None and operation is not None and operation.type in _PROBABILITIES:
        formed = _PROBABILITIES[operation.type](formed_once(operation.inputs[0]))
    else:
        formed = formed_once(outputs)
    if logits is not None:
        formed._keras_logits = formed_once(logits)
    return with_mask_of(outputs, formed)  # the loss leaves masked tokens out
