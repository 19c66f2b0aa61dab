"""Clipped gradient sums and per-example norms of any Keras model, outside of training."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfdp.clipping import arguments
from tfdp.clipping.clip import Clipping
from tfdp.clipping.forward import Batch
from tfdp.clipping.function import ClippedGradient
from tfdp.clipping.losses import per_example_loss
from tfdp.clipping.totals import added, no_sums


class ClippedSum(NamedTuple):
    """Result of ``clipped_gradient_sum``.

    Attributes:
      gradients: Clipped sums aligned with ``model.trainable_variables``.
      norms: ``[B]`` gradient norms before clipping.
      squared_norms: ``[weights, B]``: their squares, apart for every trainable variable.
      losses: ``[B]`` losses; zero at padding.
    """

    gradients: list[tf.Tensor]
    norms: tf.Tensor
    squared_norms: tf.Tensor
    losses: tf.Tensor


def clipped_gradient_sum(
    model: keras.Model,
    loss: Any,
    x: Any,
    y: Any,
    clip_norm: float | Clipping,
    mask: Any = None,
    sample_weight: Any = None,
    engine: str = "auto",
    microbatch_size: int | None = None,
    seed: tuple[int, int] = (0, 0),
    jit_compile: bool | str = "auto",
    public_examples: Any = None,
) -> ClippedSum:
    """Sums the gradients of all examples, each scaled to norm at most ``clip_norm``.

    No noise is added: the result is not private by itself.

    Args:
      model: A built Keras model.
      loss: As in ``compile``: a name, function, object, or nested structure of them.
      x: Inputs, nested; every leaf ``[B, ...]``.
      y: Targets, nested; every leaf ``[B, ...]``.
      clip_norm: Bound C on every example's L2 norm over all trainable weights jointly; or
        another ``Clipping``, such as ``Automatic`` or ``PerLayer``.
      mask: ``[B]`` bool; False marks rows that contribute zero.
      sample_weight: ``[B]``, or one weight per token; applied before clipping.
      engine: "auto", "single_pass", "two_pass" or "vectorized"; they agree.
      microbatch_size: Rows handled at a time; by default as many as take least time within about
        1 GiB, 4 GiB on accelerators.
      seed: Seeds dropout and its like.
      jit_compile: As for ``ClippedGradient``.
      public_examples: As for ``ClippedGradient``.

    Norms that come from Gram matrices are raised by what float32 rounding can hide, so that the
    bound holds. Where an example's uses of a weight all but cancel, as the two branches of a
    siamese network on nearly equal inputs, they come out too large, never too small;
    engine="vectorized" has no such limit.

    Raises:
      ScalarLossError: The loss gives no value per example.
      UnsupportedLayerError: A layer mixes examples or has no rule.
      TypeError: ``x``, ``y`` or ``sample_weight`` holds something that is not an array of numbers.
      ValueError: An argument is out of range, or arrays have different numbers of rows.
    """
    function = ClippedGradient(
        model,
        per_example_loss(loss, output_names=getattr(model, "output_names", None)),
        clip_norm,
        engine,
        jit_compile=jit_compile,
        public_examples=public_examples,
    )
    arguments.check_microbatch_size(microbatch_size)
    arguments.check_seed(seed)
    fields = arguments.as_fields(x, y, sample_weight)
    mask = None if mask is None else arguments.flags(mask)
    rows = arguments.common_length(
        {"x": fields[0], "y": fields[1], "sample_weight": fields[2], "mask": mask}
    )
    mask = np.ones(rows, bool) if mask is None else mask
    size = microbatch_size
    if size is None:
        size = function.rows_at_once(_padded(fields, mask, 0, 1, seed), [rows])
    weights = [tf.convert_to_tensor(v.value) for v in function.forward.trainable]
    state = [tf.convert_to_tensor(v.value) for v in function.forward.state]
    sums = no_sums(weights)
    parts = []
    for start in range(0, rows, size):
        batch = _padded(fields, mask, start, size, seed)
        part = function(weights, state, batch)
        sums = added(sums, part.sums)
        parts.append(
            [t[..., : rows - start] for t in (part.norms, part.squared_norms, part.losses)]
        )
    if not parts:
        return ClippedSum(sums, tf.zeros([0]), tf.zeros([len(sums), 0]), tf.zeros([0]))
    return ClippedSum(sums, *(tf.concat(pieces, -1) for pieces in zip(*parts, strict=True)))


def per_example_norms(
    model: keras.Model, loss: Any, x: Any, y: Any, by_variable: bool = False, **kwargs: Any
) -> tf.Tensor:
    """Returns the norm of every example's gradient.

    Args:
      model: A built Keras model.
      loss: As in ``compile``.
      x: Inputs.
      y: Targets.
      by_variable: Whether to give a norm for every trainable variable apart, ``[weights, B]``,
        in place of one over all of them jointly, ``[B]``.
      **kwargs: As in ``clipped_gradient_sum``.
    """
    found = clipped_gradient_sum(model, loss, x, y, clip_norm=1.0, **kwargs)
    return tf.sqrt(found.squared_norms) if by_variable else found.norms


def _padded(fields: Any, mask: np.ndarray, start: int, size: int, seed: tuple) -> Batch:
    """Takes rows from ``start`` on, padded with zeros to the static size."""

    def take(leaf):
        if leaf is None:
            return None
        piece = leaf[start : start + size]
        return tf.constant(np.pad(piece, [(0, size - len(piece))] + [(0, 0)] * (leaf.ndim - 1)))

    x, y, weight = keras.tree.map_structure(take, fields)
    seed = tf.random.experimental.stateless_fold_in(tf.constant(seed, tf.int32), start)
    return Batch(x, y, weight, take(mask), seed)
