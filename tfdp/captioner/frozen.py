"""What the captioner adds to its tokens and never trains."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

#: Standard deviation of the random vectors at the start.
FROZEN_STDDEV = 0.02


class ClassToken(keras.layers.Layer):
    """Puts one frozen random token before the patches: [B, N, D] -> [B, N + 1, D]."""

    def build(self, input_shape: tuple) -> None:
        self.token = self.add_weight(
            shape=(input_shape[-1],),
            initializer=keras.initializers.RandomNormal(stddev=FROZEN_STDDEV),
            trainable=False,
            name="token",
        )

    def call(self, x: Any) -> Any:
        # Built on the input's shape, so that a batch of unknown size needs no shape arithmetic.
        first = ops.zeros_like(x[:, :1]) + self.token  # [B, 1, D]
        return ops.concatenate([first, x], axis=1)


class PositionAndType(keras.layers.Layer):
    """Adds a fixed position table and a frozen random type vector to the tokens.

    Args:
        table: float32 [L, D], one row for each position.
    """

    def __init__(self, table: np.ndarray, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._table = table

    def build(self, input_shape: tuple) -> None:
        self.positions = self.add_weight(
            shape=self._table.shape,
            initializer=lambda shape, dtype: ops.convert_to_tensor(self._table, dtype),
            trainable=False,
            name="positions",
        )
        self.type = self.add_weight(
            shape=(self._table.shape[-1],),
            initializer=keras.initializers.RandomNormal(stddev=FROZEN_STDDEV),
            trainable=False,
            name="type",
        )

    def call(self, x: Any, index: Any = 0) -> Any:
        """Adds the rows from `index` on: [B, T, D] -> [B, T, D]."""
        size = (ops.shape(x)[1], self._table.shape[-1])
        return x + ops.slice(self.positions, (index, 0), size) + self.type
