"""Settings of the captioner, and the five sizes of DP-Cap."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras

from tfdp import checks

#: (encoder width, depth, heads, decoder width, depth, heads) of each published size.
_DPCAP_SIZES = {
    "nano": (192, 12, 6, 192, 6, 6),
    "tiny": (384, 12, 6, 384, 6, 6),
    "small": (576, 12, 12, 576, 6, 12),
    "base": (768, 12, 12, 768, 6, 12),
    "large": (1024, 24, 16, 768, 6, 12),
}

DPCAP_SIZES = tuple(_DPCAP_SIZES)

#: The id that fills a caption up; the loss and the scores leave it out.
PAD_ID = 0


@keras.saving.register_keras_serializable(package="tfdp")
@dataclasses.dataclass(frozen=True)
class CaptionerConfig:
    """Everything that fixes the shape of a `Captioner`. The defaults are DP-Cap Base.

    Attributes:
        image_size: Side of the square input picture, in pixels.
        patch_size: Side of one square patch, in pixels; it divides `image_size`.
        encoder_width: Channels of an image token; a multiple of 4 and of `encoder_heads`.
        encoder_depth: Number of encoder blocks.
        encoder_heads: Attention heads of an encoder block.
        decoder_width: Channels of a text token; a multiple of 4 and of `decoder_heads`.
        decoder_depth: Number of decoder blocks.
        decoder_heads: Attention heads of a decoder block.
        vocab_size: Number of token ids. Id 0 is padding.
        max_length: Longest caption in ids, start and end included.
        mlp_ratio: Hidden width of an MLP, as a multiple of the block's width.
        decoder_norm: Where a decoder block normalizes: "post" adds first (DP-Cap), "pre"
            normalizes each branch's input (CapPa).
        start_id: The id that begins a caption (101 in BERT's vocabulary).
        end_id: The id that ends a caption (102 in BERT's vocabulary).

    Raises:
        TypeError: A number is not a whole one.
        ValueError: A setting is out of range, or two settings do not fit together.
    """

    image_size: int = 224
    patch_size: int = 16
    encoder_width: int = 768
    encoder_depth: int = 12
    encoder_heads: int = 12
    decoder_width: int = 768
    decoder_depth: int = 6
    decoder_heads: int = 12
    vocab_size: int = 30522
    max_length: int = 40
    mlp_ratio: int = 4
    decoder_norm: str = "post"
    start_id: int = 101
    end_id: int = 102

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if field.name != "decoder_norm":
                checks.positive_int(field.name, getattr(self, field.name))
        if self.decoder_norm not in ("post", "pre"):
            raise ValueError(f"decoder_norm must be 'post' or 'pre', got {self.decoder_norm!r}.")
        if self.image_size % self.patch_size:
            raise ValueError(
                f"image_size {self.image_size} is not a multiple of patch_size {self.patch_size}."
            )
        for side in ("encoder", "decoder"):
            _check_width(side, getattr(self, f"{side}_width"), getattr(self, f"{side}_heads"))
        if self.max_length < 2:
            raise ValueError(f"max_length must hold a start and an end id, got {self.max_length}.")
        for name in ("start_id", "end_id"):
            if getattr(self, name) >= self.vocab_size:
                raise ValueError(
                    f"{name} {getattr(self, name)} is outside the vocabulary of "
                    f"{self.vocab_size} ids (vocab_size)."
                )
        if self.start_id == self.end_id:
            raise ValueError(f"start_id and end_id are both {self.start_id}; they must differ.")

    @classmethod
    def dpcap(cls, size: str = "base", **changes: Any) -> CaptionerConfig:
        """A published size of DP-Cap: "nano", "tiny", "small", "base" or "large".

        Args:
            size: The name of the size.
            **changes: Settings that differ from the published ones, by field name.

        Raises:
            ValueError: There is no such size.
        """
        if size not in _DPCAP_SIZES:
            raise ValueError(f"size must be one of {', '.join(DPCAP_SIZES)}, got {size!r}.")
        width, depth, heads, text_width, text_depth, text_heads = _DPCAP_SIZES[size]
        settings: dict[str, Any] = {
            "encoder_width": width,
            "encoder_depth": depth,
            "encoder_heads": heads,
            "decoder_width": text_width,
            "decoder_depth": text_depth,
            "decoder_heads": text_heads,
        }
        return cls(**{**settings, **changes})

    @property
    def num_patches(self) -> int:
        """Patches of one picture."""
        return (self.image_size // self.patch_size) ** 2

    @property
    def num_image_tokens(self) -> int:
        """Tokens of one picture: its patches and the class token."""
        return self.num_patches + 1

    def get_config(self) -> dict[str, Any]:
        """The settings as a dictionary of plain values (Keras's serialization protocol)."""
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> CaptionerConfig:
        """The inverse of `get_config`."""
        return cls(**config)


def _check_width(side: str, width: int, heads: int) -> None:
    if width % heads:
        raise ValueError(f"{side}_width {width} is not a multiple of {side}_heads {heads}.")
    if width % 4:
        # A position is a sine and a cosine of its row, and the same of its column.
        raise ValueError(f"{side}_width must be a multiple of 4, got {width}.")
