"""Per-example gradients of all weights from one forward and one backward pass.

The backward pass stops at the layers' outputs. A layer's input and the gradient of its output
hold every example's weight gradient in factored form, so neither a second backward pass nor the
gradients themselves are needed: norms and clipped sum come from the same recorded pairs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from tfdp.clipping.forward import Batch, Forward
from tfdp.clipping.recording import Recorder, RecordingScope
from tfdp.clipping.terms import Term, merge


class PerExample(NamedTuple):
    """What an engine finds for one batch.

    Attributes:
      terms: One term per trainable variable, None where the loss does not depend on it.
      losses: ``[B]``; zero at padding.
      outputs: The model's outputs.
    """

    terms: list[Term | None]
    losses: tf.Tensor
    outputs: Any


def single_pass(
    forward: Forward, weights: list, state: list, batch: Batch
) -> tuple[PerExample, dict[str, str]]:
    """Returns per-example gradients, and the weights that no rule covers (path -> layer).

    The result is right only where the second value is empty.
    """
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        recorder = Recorder(forward.model, tape)
        scope = RecordingScope(forward.mapping(weights, state, batch.seed), recorder)
        with scope, recorder.recording():
            losses, outputs = forward.losses(batch.x, batch.y, batch.sample_weight)
        losses = tf.where(batch.mask, losses, 0)
        # Examples do not mix, so the gradient of the sum holds each example's own, row by row.
        total = tf.reduce_sum(losses)
    gradients = tape.gradient(total, [tensor for tensor, _ in recorder.taps])

    found: dict[int, list[Term]] = {id(v): [] for v in forward.trainable}
    for (_, terms), gradient in zip(recorder.taps, gradients, strict=True):
        if gradient is None:  # an output that the loss does not use
            continue
        for variable, term in terms(tf.convert_to_tensor(gradient)):
            if id(variable) in found:
                found[id(variable)].append(term)
    merged = [merge(found[id(v)]) if found[id(v)] else None for v in forward.trainable]
    return PerExample(merged, losses, outputs), recorder.uncovered
