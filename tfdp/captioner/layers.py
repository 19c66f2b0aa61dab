"""The fixed sine-cosine position tables of DP-Cap, in numpy."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from tfdp.captioner.attention import Cache, CrossAttention, SelfAttention


def sincos_table(positions: np.ndarray, width: int) -> np.ndarray:
    """One row [all sines | all cosines] for each position.

    Frequencies are 10000^(-i / (width / 2)). The table is rounded to float32, whatever the
    model's precision: it is a constant of the architecture.

    Args:
        positions: Positions, any shape; they are taken in row-major order.
        width: Channels of a row, even.

    Returns:
        float32 array [positions.size, width].
    """
    half = width // 2
    frequencies = 10000.0 ** (-np.arange(half, dtype=np.float64) / half)
    angles = np.outer(np.asarray(positions, np.float64).reshape(-1), frequencies)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def text_positions(length: int, width: int) -> np.ndarray:
    """The table for a text of `length` tokens: float32 [length, width]."""
    return sincos_table(np.arange(length), width)


def image_positions(side: int, width: int) -> np.ndarray:
    """The table for a class token and `side` x `side` patches, row by row.

    The first half of the channels holds the patch's column, the second half its row. The
    class token's row is zero.

    Returns:
        float32 array [1 + side * side, width].
    """
    rows, columns = np.mgrid[:side, :side]
    patches = np.concatenate(
        [sincos_table(columns, width // 2), sincos_table(rows, width // 2)], axis=1
    )
    return np.concatenate([np.zeros((1, width), np.float32), patches])


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


ENCODER_EPSILON = 1e-6
DECODER_EPSILON = 1e-5


def exact_gelu(x: Any) -> Any:
    """x * Phi(x) by the error function.

    Keras's own goes through a float32 constant, which costs eight digits in float64.
    """
    return 0.5 * x * (1.0 + ops.erf(x * 2.0**-0.5))


class MLP(keras.layers.Layer):
    """Dense, exact GELU, Dense: [..., D] -> [..., D].

    Args:
        width: Channels of a token.
        ratio: Hidden channels, as a multiple of `width`.
        use_bias: Whether both Dense layers have a bias.
    """

    def __init__(self, width: int, ratio: int, use_bias: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hidden = keras.layers.Dense(
            ratio * width, use_bias=use_bias, dtype=self.dtype_policy, name="hidden"
        )
        self.output_projection = keras.layers.Dense(
            width, use_bias=use_bias, dtype=self.dtype_policy, name="output"
        )

    def build(self, input_shape: tuple) -> None:
        self.hidden.build(input_shape)
        self.output_projection.build((*input_shape[:-1], self.hidden.units))

    def call(self, x: Any) -> Any:
        return self.output_projection(exact_gelu(self.hidden(x)))


class EncoderBlock(keras.layers.Layer):
    """Pre-norm self-attention and MLP: [B, N, D] -> [B, N, D].

    Args:
        width: Channels of a token.
        heads: Attention heads.
        mlp_ratio: Hidden width of the MLP, as a multiple of `width`.
    """

    def __init__(self, width: int, heads: int, mlp_ratio: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        policy = self.dtype_policy
        self.norm_1 = _norm(ENCODER_EPSILON, policy, "norm_1")
        self.attention = SelfAttention(width, heads, True, dtype=policy, name="attention")
        self.norm_2 = _norm(ENCODER_EPSILON, policy, "norm_2")
        self.mlp = MLP(width, mlp_ratio, True, dtype=policy, name="mlp")

    def build(self, input_shape: tuple) -> None:
        for layer in (self.norm_1, self.attention, self.norm_2, self.mlp):
            layer.build(input_shape)

    def call(self, x: Any) -> Any:
        x = x + self.attention(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class DecoderBlock(keras.layers.Layer):
    """Causal self-attention, cross-attention and MLP, without biases.

    Args:
        width: Channels of a token.
        heads: Attention heads.
        mlp_ratio: Hidden width of the MLP, as a multiple of `width`.
        norm: "post" normalizes each sum (DP-Cap), "pre" each branch's input (CapPa).
    """

    def __init__(
        self, width: int, heads: int, mlp_ratio: int, norm: str = "post", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        policy = self.dtype_policy
        self.norm = norm
        self.self_attention = SelfAttention(
            width, heads, False, dtype=policy, name="self_attention"
        )
        self.norm_1 = _norm(DECODER_EPSILON, policy, "norm_1")
        self.cross_attention = CrossAttention(width, heads, dtype=policy, name="cross_attention")
        self.norm_2 = _norm(DECODER_EPSILON, policy, "norm_2")
        self.mlp = MLP(width, mlp_ratio, False, dtype=policy, name="mlp")
        self.norm_3 = _norm(DECODER_EPSILON, policy, "norm_3")

    def build(self, input_shape: tuple) -> None:
        for layer in (
            self.self_attention,
            self.norm_1,
            self.cross_attention,
            self.norm_2,
            self.mlp,
            self.norm_3,
        ):
            layer.build(input_shape)

    def call(self, x: Any, memory: Any, visible: Any) -> Any:
        """Runs over whole texts.

        Args:
            x: Text tokens [B, T, D].
            memory: Image tokens [B, N, D].
            visible: bool [T, T], True where a token may look.

        Returns:
            [B, T, D].
        """
        x = self._after(x + self.self_attention(self._before(x, self.norm_1), visible), self.norm_1)
        return self._read(x, self.cross_attention.project(memory))

    def extend(self, x: Any, memory: Cache, cache: Cache, index: Any) -> tuple[Any, Cache]:
        """Runs over the tokens at `index`, ..., with the earlier ones in the cache.

        Args:
            x: The new tokens [B * R, T, D], R texts for each picture.
            memory: The picture's keys and values by `cross_attention.project`.
            cache: Keys and values of the texts so far, each [B * R, L, D].
            index: Position of the first new token.

        Returns:
            The new tokens [B * R, T, D] and the longer cache.
        """
        y, cache = self.self_attention.extend(self._before(x, self.norm_1), cache, index)
        return self._read(self._after(x + y, self.norm_1), memory), cache

    def _read(self, x: Any, memory: Cache) -> Any:
        """The part that every token does on its own: look at the picture, then the MLP."""
        y = self.cross_attention(self._before(x, self.norm_2), *memory)
        x = self._after(x + y, self.norm_2)
        return self._after(x + self.mlp(self._before(x, self.norm_3)), self.norm_3)

    def _before(self, x: Any, norm: keras.layers.Layer) -> Any:
        return norm(x) if self.norm == "pre" else x

    def _after(self, x: Any, norm: keras.layers.Layer) -> Any:
        return norm(x) if self.norm == "post" else x


def _norm(epsilon: float, policy: Any, name: str) -> keras.layers.LayerNormalization:
    return keras.layers.LayerNormalization(epsilon=epsilon, dtype=policy, name=name)
