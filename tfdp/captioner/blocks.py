"""Transformer blocks of the captioner's encoder and decoder."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from tfdp.captioner.attention import Cache, CrossAttention, SelfAttention

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
        width: channels of a token.
        ratio: hidden channels, as a multiple of `width`.
        use_bias: whether both Dense layers have a bias.
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
        width: channels of a token.
        heads: attention heads.
        mlp_ratio: hidden width of the MLP, as a multiple of `width`.
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
        width: channels of a token.
        heads: attention heads.
        mlp_ratio: hidden width of the MLP, as a multiple of `width`.
        norm: "post" normalises each sum (DP-Cap), "pre" each branch's input (CapPa).
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
            x: text tokens [B, T, D].
            memory: image tokens [B, N, D].
            visible: bool [T, T], True where a token may look.

        Returns:
            [B, T, D].
        """
        x = self._after(x + self.self_attention(self._before(x, self.norm_1), visible), self.norm_1)
        return self._read(x, self.cross_attention.project(memory))

    def extend(self, x: Any, memory: Cache, cache: Cache, index: Any) -> tuple[Any, Cache]:
        """Runs over the tokens at `index`, ..., with the earlier ones in the cache.

        Args:
            x: the new tokens [B * R, T, D], R texts for each picture.
            memory: the picture's keys and values by `cross_attention.project`.
            cache: keys and values of the texts so far, each [B * R, L, D].
            index: position of the first new token.

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
