"""The picture's side of the captioner: a vision transformer."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from tfdp.captioner.blocks import ENCODER_EPSILON, EncoderBlock
from tfdp.captioner.config import CaptionerConfig
from tfdp.captioner.frozen import ClassToken, PositionAndType
from tfdp.captioner.positions import image_positions


def patchify(images: Any, patch_size: int) -> Any:
    """Cuts pictures into patches, row by row.

    Args:
        images: [B, S, S, 3].
        patch_size: side P of a patch; it divides S.

    Returns:
        [B, (S / P)^2, P * P * 3]; a patch is flattened in the order (row, column, colour).
    """
    side = images.shape[1] // patch_size
    # [B, side, P, side, P, 3]
    x = ops.reshape(images, (-1, side, patch_size, side, patch_size, images.shape[-1]))
    x = ops.transpose(x, (0, 1, 3, 2, 4, 5))  # [B, side, side, P, P, 3]
    return ops.reshape(x, (-1, side * side, patch_size * patch_size * images.shape[-1]))


class ImageEncoder(keras.layers.Layer):
    """Pictures [B, S, S, 3] to tokens [B, N, D], the class token first, normalised at the end.

    Args:
        config: the captioner's settings.
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
