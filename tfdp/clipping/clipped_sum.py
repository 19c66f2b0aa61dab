"""Clipped gradient sums and per-example norms of any Keras model, outside of training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfdp import checks
from tfdp.clipping.clipped_gradient import ClippedGradient
from tfdp.clipping.example_losses import per_example_loss
from tfdp.clipping.examples import Batch
from tfdp.clipping.factors import added, no_sums
from tfdp.privacy.clipping import FlatClipping


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
    clip_norm: float | Mapping[str, float],
    mask: Any = None,
    sample_weight: Any = None,
    *,
    clipping: FlatClipping | Mapping[str, Any] | str | None = None,
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
      clip_norm: C, the largest L2 norm of an example's contribution over all trainable weights
        jointly; or the clip norms of layers by their path.
      mask: ``[B]`` bool; False marks examples that contribute zero.
      sample_weight: ``[B]``, or one weight per token; applied before clipping.
      clipping: As for ``ClippedGradient``: flat clipping unless given.
      engine: "auto", "single_pass", "two_pass" or "vectorized"; they agree.
      microbatch_size: Examples processed at a time. By default, the size that takes the least time
        within about 1 GiB (4 GiB on accelerators).
      seed: Seeds dropout and the like.
      jit_compile: As for ``ClippedGradient``.
      public_examples: As for ``ClippedGradient``.

    Ghost norms are raised by what float32 rounding can hide, so that no contribution is larger than
    the clip norm. Where an example's uses of a weight nearly cancel, as in the two branches of a
    siamese network on nearly equal inputs, the norms are too large, never too small.
    engine="vectorized" has no such limit.

    Raises:
      ScalarLossError: The loss gives no value per example.
      UnsupportedLayerError: A layer mixes examples or has no rule.
      TypeError: ``x``, ``y`` or ``sample_weight`` holds something that is not an array of numbers.
      ValueError: An argument is out of range, or arrays have different numbers of examples.
    """
    function = ClippedGradient(
        model,
        per_example_loss(loss, output_names=getattr(model, "output_names", None)),
        clip_norm,
        clipping=clipping,
        engine=engine,
        jit_compile=jit_compile,
        public_examples=public_examples,
    )
    if microbatch_size is not None:
        checks.whole("microbatch_size", microbatch_size, least=1, or_else="None")
    _check_seed(seed)
    fields = _as_fields(x, y, sample_weight)
    mask = None if mask is None else _as_flags(mask)
    count = _common_length(
        {"x": fields[0], "y": fields[1], "sample_weight": fields[2], "mask": mask}
    )
    mask = np.ones(count, bool) if mask is None else mask
    size = microbatch_size
    if size is None:
        size = function.best_microbatch_size(_padded(fields, mask, 0, 1, seed), [count])
    weights = [tf.convert_to_tensor(v.value) for v in function.forward.trainable]
    state = [tf.convert_to_tensor(v.value) for v in function.forward.state]
    sums = no_sums(weights)
    parts = []
    for start in range(0, count, size):
        batch = _padded(fields, mask, start, size, seed)
        part = function(weights, state, batch)
        sums = added(sums, part.sums)
        parts.append(
            [t[..., : count - start] for t in (part.norms, part.squared_norms, part.losses)]
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
      by_variable: Whether to return one norm per trainable variable, ``[weights, B]``, instead of
        one over all of them jointly, ``[B]``.
      **kwargs: As in ``clipped_gradient_sum``.
    """
    found = clipped_gradient_sum(model, loss, x, y, clip_norm=1.0, **kwargs)
    return tf.sqrt(found.squared_norms) if by_variable else found.norms


def _padded(fields: Any, mask: np.ndarray, start: int, size: int, seed: tuple) -> Batch:
    """Takes the examples from ``start`` on, padded with zeros to the static size."""

    def take(leaf):
        if leaf is None:
            return None
        piece = leaf[start : start + size]
        return tf.constant(np.pad(piece, [(0, size - len(piece))] + [(0, 0)] * (leaf.ndim - 1)))

    x, y, weight = keras.tree.map_structure(take, fields)
    seed = tf.random.experimental.stateless_fold_in(tf.constant(seed, tf.int32), start)
    return Batch(x, y, weight, take(mask), seed)


def _as_fields(x: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """Returns all leaves as arrays.

    Raises:
      TypeError: One holds something that is no number, nor text in ``x``.
    """
    given = {"x": x, "y": y, "sample_weight": sample_weight}
    arrays: Any = keras.tree.map_structure(
        lambda leaf: None if leaf is None else np.asarray(leaf), given
    )
    for path, leaf in keras.tree.flatten_with_path(arrays):
        if leaf is None or leaf.dtype.kind not in "OSUMm":
            continue
        name = ".".join(map(str, path))
        if not all(isinstance(value, str | bytes) for value in leaf.flat):
            raise TypeError(
                f"{name} must be an array [B, ...] of numbers, got objects of type "
                f"{type(leaf.flat[0]).__name__}. Pad examples of different lengths first, and "
                "convert datasets and sparse tensors to arrays."
            )
        if path[0] != "x":
            raise TypeError(f"{name} must be an array of numbers, got text: {leaf.flat[:3]}.")
    return arrays["x"], arrays["y"], arrays["sample_weight"]


def _as_flags(mask: Any) -> np.ndarray:
    """Returns the mask as booleans ``[B]``.

    Raises:
      ValueError: It is something else.
    """
    given = np.asarray(mask)
    if given.ndim != 1 or not np.isin(given, [0, 1]).all():
        raise ValueError(f"mask must hold one boolean per example, shape [B], got {mask!r}.")
    return given.astype(bool)


def _common_length(fields: dict[str, Any]) -> int:
    """Returns how many examples all arrays hold.

    Raises:
      TypeError: Something is not an array.
      ValueError: They hold different numbers of examples, or there are none.
    """
    for name in ("x", "y"):
        if all(leaf is None for leaf in keras.tree.flatten(fields[name])):
            raise ValueError(f"{name}={fields[name]!r}: expected arrays [B, ...].")
    lengths = {}
    for path, leaf in keras.tree.flatten_with_path(fields):
        name = ".".join(map(str, path))
        if leaf is not None and not leaf.ndim:
            raise TypeError(
                f"{path[0]} must hold arrays [B, ...], got the single value {leaf!r} at {name}. "
                "Lists of numbers become arrays by np.asarray(...)."
            )
        if leaf is not None:
            lengths[name] = len(leaf)
    if len(set(lengths.values())) > 1:
        raise ValueError(f"All arrays must hold the same number of examples, got {lengths}.")
    return next(iter(lengths.values()))


def _check_seed(seed: Any) -> None:
    """Raises ``ValueError`` for anything but two whole numbers."""
    given = np.asarray(seed)
    if given.shape != (2,) or given.dtype.kind not in "iu":
        raise ValueError(f"seed must be two whole numbers, such as (0, 1), got {seed!r}.")
