"""Notices weights that change between steps, which the ledger would know nothing of."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import keras
import tensorflow as tf


class WeightWatch:
    """Warns once when weights are not those that the last step left.

    A callback may put back or average weights, which is no loss of privacy; one that computes them
    from private records is outside of the guarantee.

    Args:
      weights: The trainable variables.
    """

    def __init__(self, weights: Sequence[keras.Variable]):
        self._weights = list(weights)
        self._left: tf.Tensor | None = None
        self._warned = False
        self._sums = tf.function(self._summed, autograph=False)

    def leave(self) -> None:
        """Remembers the weights that a step left."""
        if not self._warned:
            self._left = self._sums()

    def come_back(self) -> None:
        """Warns if they are others by now."""
        if self._left is None or self._warned:
            return
        # Sums on some devices differ in their last digits from call to call.
        moved = tf.abs(self._sums() - self._left) > 1e-5 * tf.abs(self._left)
        changed = tf.reduce_any(moved, axis=1).numpy()
        if changed.any():
            self._warned = True
            named = next(v.path for v, other in zip(self._weights, changed, strict=True) if other)
            warnings.warn(
                f"Something other than the optimizer changed weights between two steps, "
                f"{named} among them; a callback does, for example. If the new values come from "
                "private records, the guarantee does not cover them.",
                stacklevel=2,
            )

    def _summed(self) -> tf.Tensor:
        """``[weights, 2]``: sums of the sizes of the values and of their squares."""
        values = [tf.cast(tf.convert_to_tensor(v.value), tf.float32) for v in self._weights]
        sums = ([tf.reduce_sum(tf.abs(value)), tf.reduce_sum(value * value)] for value in values)
        return tf.stack([tf.stack(pair) for pair in sums])
