"""The picture's side of the captioner: a vision transformer."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from tfdp.captioner.attention import Cache, causal_mask
from tfdp.captioner.captioner_config import CaptionerConfig
from tfdp.captioner.layers import (
    DECODER_EPSILON,
    ENCODER_EPSILON,
    ClassToken,
    DecoderBlock,
    EncoderBlock,
    PositionAndType,
    image_positions,
    text_positions,
)


def patchify(images: Any, patch_size: int) -> Any:
    """Cuts pictures into patches, row by row.

    Args:
        images: [B, S, S, 3].
        patch_size: Side P of a patch; it divides S.

    Returns:
        [B, (S / P)^2, P * P * 3]; a patch is flattened in the order (row, column, color).
    """
    side = images.shape[1] // patch_size
    # [B, side, P, side, P, 3]
    x = ops.reshape(images, (-1, side, patch_size, side, patch_size, images.shape[-1]))
    x = ops.transpose(x, (0, 1, 3, 2, 4, 5))  # [B, side, side, P, P, 3]
    return ops.reshape(x, (-1, side * side, patch_size * patch_size * images.shape[-1]))


class ImageEncoder(keras.layers.Layer):
    """Pictures [B, S, S, 3] to tokens [B, N, D], the class token first, normalized at the end.

    Args:
        config: The captioner's settings.
    """

    def __init__(self, config: CaptionerConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        policy = self.dtype_policy
        width = config.encoder_width
        self.config = config
        self.patch_embedding = keras.layers.Dense(width, dtype=policy, name="patch_embedding")
        self.class_token = ClassToken(dtype=policy, name="class_token")
        table = image_positions(config.image_size // config.patch_size, width)
        self.positions = PositionAndType(table, dtype=policy, name="positions")
        self.blocks = [
            EncoderBlock(
                width, config.encoder_heads, config.mlp_ratio, dtype=policy, name=f"block_{i}"
            )
            for i in range(config.encoder_depth)
        ]
        self.norm = keras.layers.LayerNormalization(
            epsilon=ENCODER_EPSILON, dtype=policy, name="norm"
        )

    def build(self, input_shape: tuple) -> None:
        tokens = (None, self.config.num_image_tokens, self.config.encoder_width)
        self.patch_embedding.build((None, self.config.num_patches, 3 * self.config.patch_size**2))
        for layer in (self.class_token, self.positions, *self.blocks, self.norm):
            layer.build(tokens)

    def call(self, images: Any) -> Any:
        x = self.patch_embedding(patchify(images, self.config.patch_size))  # [B, N - 1, D]
        x = self.positions(self.class_token(x))  # [B, N, D]
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


class TextDecoder(keras.layers.Layer):
    """Token ids and a picture's memory to next-token logits.

    No padding mask: only ids after a caption's end would see one, and the loss leaves
    those out.

    Args:
        config: The captioner's settings.
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
            memory: What `project` gave for the B pictures.
            cache: What `empty_cache` or the last call gave.
            index: Position of the first new token.

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
