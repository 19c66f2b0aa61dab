"""The text's side of the captioner: a decoder that looks at the picture's tokens."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from tfdp.captioner.attention import Cache, causal_mask
from tfdp.captioner.blocks import DECODER_EPSILON, DecoderBlock
from tfdp.captioner.config import CaptionerConfig
from tfdp.captioner.frozen import PositionAndType
from tfdp.captioner.positions import text_positions


class TextDecoder(keras.layers.Layer):
    """Token ids and a picture's memory to next-token logits.

    No padding mask: only ids after a caption's end would see one, and the loss leaves
    those out.

    Args:
        config: the captioner's settings.
    """

    def __init__(self, config: CaptionerConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        policy = self.dtype_policy
        width = config.decoder_width
        self.config = config
        self.token_embedding = keras.layers.Embedding(
            config.vocab_size,
            width,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=1.0),
            dtype=policy,
            name="token_embedding",
        )
        table = text_positions(config.max_length, width)
        self.positions = PositionAndType(table, dtype=policy, name="positions")
        self.blocks = [
            DecoderBlock(
                width,
                config.decoder_heads,
                config.mlp_ratio,
                config.decoder_norm,
                dtype=policy,
                name=f"block_{i}",
            )
            for i in range(config.decoder_depth)
        ]
        self.head_norm = keras.layers.LayerNormalization(
            epsilon=DECODER_EPSILON, dtype=policy, name="head_norm"
        )
        self.head = keras.layers.Dense(config.vocab_size, dtype=policy, name="head")

    def build(self, input_shape: tuple) -> None:
        tokens = (None, None, self.config.decoder_width)
        self.token_embedding.build((None, None))
        for layer in (self.positions, *self.blocks, self.head_norm, self.head):
            layer.build(tokens)

    def call(self, tokens: Any, memory: Any) -> Any:
        """Teacher forcing over whole captions.

        Args:
            tokens: int [B, T] input ids, T at most `max_length`.
            memory: [B, N, D].

        Returns:
            Logits [B, T, V], float32 or better.
        """
        length = ops.shape(tokens)[1]
        visible = causal_mask(length, length)
        x = self.positions(self.token_embedding(tokens))  # [B, T, D]
        for block in self.blocks:
            x = block(x, memory, visible)
        return self._logits(x)

    def project(self, memory: Any) -> tuple[Cache, ...]:
        """Every block's keys and values of the memory [B, N, D]."""
        return tuple(block.cross_attention.project(memory) for block in self.blocks)

    def empty_cache(self, batch: Any, length: int) -> tuple[Cache, ...]:
        """Room for the keys and values of `batch` texts of `length` tokens, in every block."""
        room = ops.zeros((batch, length, self.config.decoder_width), self.compute_dtype)
        return tuple((room, room) for _ in self.blocks)

    def extend(
        self, tokens: Any, memory: tuple[Cache, ...], cache: tuple[Cache, ...], index: Any
    ) -> tuple[Any, tuple[Cache, ...]]:
        """Logits of the tokens at `index`, ..., with the earlier ones in the cache.

        Args:
            tokens: int [B * R, T] new ids: R texts for each picture, one picture after another.
            memory: what `project` gave for the B pictures.
            cache: what `empty_cache` or the last call gave.
            index: position of the first new token.

        Returns:
            Logits [B * R, T, V] and the longer cache.
        """
        x = self.positions(self.token_embedding(tokens), index=index)
        longer = []
        for block, seen, past in zip(self.blocks, memory, cache, strict=True):
            x, kept = block.extend(x, seen, past, index)
            longer.append(kept)
        return self._logits(x), tuple(longer)

    def _logits(self, x: Any) -> Any:
        logits = self.head(self.head_norm(x))
        return ops.cast(logits, keras.backend.result_type(logits.dtype, "float32"))
