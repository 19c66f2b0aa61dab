"""Attention whose weights all sit in Dense layers with fused projections."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

#: Keys and values of the tokens seen so far, each [B, L, D].
Cache = tuple[Any, Any]


def causal_mask(queries: int, keys: int, index: Any = 0) -> Any:
    """Which keys each query may see: those at its own position and before.

    Args:
        queries: Number of queries; they stand at positions index, index + 1, ...
        keys: Number of keys; they stand at positions 0, 1, ...
        index: Position of the first query, a Python integer or an int32 scalar.

    Returns:
        bool tensor [queries, keys].
    """
    positions = ops.arange(queries, dtype="int32")[:, None] + index
    return ops.arange(keys, dtype="int32")[None, :] <= positions


def attend(query: Any, key: Any, value: Any, heads: int, visible: Any = None) -> Any:
    """Scaled dot-product attention; head h owns the h-th contiguous run of channels.

    The softmax is taken in float32 or better, whatever the compute precision.

    Args:
        query: [B, T, D].
        key: [B, S, D].
        value: [B, S, D].
        heads: Number of heads.
        visible: bool [T, S], True where the query may look; None shows everything.

    Returns:
        [B, T, D].
    """
    size = query.shape[-1] // heads
    scores = ops.einsum(
        "bthd,bshd->bhts", _split(query * size**-0.5, heads), _split(key, heads)
    )  # [B, H, T, S]
    precise = keras.backend.result_type(scores.dtype, "float32")
    scores = ops.cast(scores, precise)
    if visible is not None:
        scores = ops.where(visible, scores, -1e9)
    weights = ops.cast(ops.softmax(scores, axis=-1), value.dtype)
    mixed = ops.einsum("bhts,bshd->bthd", weights, _split(value, heads))  # [B, T, H, D / H]
    return ops.reshape(mixed, (-1, ops.shape(query)[1], query.shape[-1]))


def _split(x: Any, heads: int) -> Any:
    """[B, T, D] -> [B, T, H, D / H]."""
    return ops.reshape(x, (-1, ops.shape(x)[1], heads, x.shape[-1] // heads))


class SelfAttention(keras.layers.Layer):
    """Attention of tokens to one another. The projection's channels are [q | k | v].

    Args:
        width: Channels of a token.
        heads: Number of heads.
        output_bias: Whether the output projection has a bias. The fused one never has.
    """

    def __init__(self, width: int, heads: int, output_bias: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.heads = heads
        self.qkv = keras.layers.Dense(
            3 * width, use_bias=False, dtype=self.dtype_policy, name="qkv"
        )
        self.output_projection = keras.layers.Dense(
            width, use_bias=output_bias, dtype=self.dtype_policy, name="output"
        )

    def build(self, input_shape: tuple) -> None:
        self.qkv.build(input_shape)
        self.output_projection.build(input_shape)

    def call(self, x: Any, visible: Any = None) -> Any:
        """[B, T, D] -> [B, T, D]; `visible` as in `attend`."""
        query, key, value = ops.split(self.qkv(x), 3, axis=-1)
        return self.output_projection(attend(query, key, value, self.heads, visible))

    def extend(self, x: Any, cache: Cache, index: Any) -> tuple[Any, Cache]:
        """Attention of the tokens at `index`, ... to themselves and to those in the cache.

        Args:
            x: The new tokens [B, T, D].
            cache: Keys and values, each [B, L, D]; rows from `index` on are overwritten.
            index: Position of the first new token.

        Returns:
            The attended tokens [B, T, D] and the cache that holds them too.
        """
        query, key, value = ops.split(self.qkv(x), 3, axis=-1)
        keys = ops.slice_update(cache[0], (0, index, 0), key)
        values = ops.slice_update(cache[1], (0, index, 0), value)
        visible = causal_mask(ops.shape(x)[1], ops.shape(keys)[1], index)
        y = attend(query, keys, values, self.heads, visible)
        return self.output_projection(y), (keys, values)


class CrossAttention(keras.layers.Layer):
    """Attention of text tokens to a picture's tokens. The memory's channels are [k | v].

    Args:
        width: Channels of a token, on both sides.
        heads: Number of heads.
    """

    def __init__(self, width: int, heads: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.heads = heads
        self.query = keras.layers.Dense(
            width, use_bias=False, dtype=self.dtype_policy, name="query"
        )
        self.key_value = keras.layers.Dense(
            2 * width, use_bias=False, dtype=self.dtype_policy, name="key_value"
        )
        self.output_projection = keras.layers.Dense(
            width, use_bias=False, dtype=self.dtype_policy, name="output"
        )

    def build(self, input_shape: tuple) -> None:
        for layer in (self.query, self.key_value, self.output_projection):
            layer.build(input_shape)

    def project(self, memory: Any) -> Cache:
        """The keys and values of the memory [B, N, D], each [B, N, D]."""
        key, value = ops.split(self.key_value(memory), 2, axis=-1)
        return key, value

    def call(self, x: Any, key: Any, value: Any) -> Any:
        """Lets texts look at their pictures.

        Args:
            x: Text tokens [B * R, T, D]: R texts for each picture, one picture after another.
            key: Keys of the memory [B, N, D].
            value: Values of the memory [B, N, D].

        Returns:
            [B * R, T, D].
        """
        length, width = ops.shape(x)[1], x.shape[-1]
        # All texts of one picture share its keys: they stand in one long row of queries.
        query = ops.reshape(self.query(x), (ops.shape(key)[0], -1, width))  # [B, R * T, D]
        y = attend(query, key, value, self.heads)
        return self.output_projection(ops.reshape(y, (-1, length, width)))
