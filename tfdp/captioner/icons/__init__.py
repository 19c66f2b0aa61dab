"""The packaged data: 15,291 icons with captions, split by concept; see ATTRIBUTION.md."""

from pathlib import Path
from typing import Any

from tfdp.captioner.image_text import ImageTextSource
from tfdp.captioner.pairs import read_manifest
from tfdp.captioner.tokenizer import CaptionTokenizer
from tfdp.data.pictures import RandomResizedCrop

_FOLDER = Path(__file__).parent
_PUBLIC_TEXT = _FOLDER / "vocabulary"


def load_icons(
    split: str,
    tokenizer: CaptionTokenizer | None = None,
    *,
    image_size: int = 32,
    max_length: int = 16,
    augment: RandomResizedCrop | None = None,
    normalization: str = "half",
    cache: bool = True,
) -> ImageTextSource:
    """Opens the packaged icons, drawn at 32 pixels.

    Args:
        split: "train" or "test"; no concept is in both.
        tokenizer: Turns captions into ids; the packaged vocabulary by default.
        image_size: Pixels along a side; other sizes than 32 are resampled.
        max_length: Ids of a caption with start and end; 16 holds all but a handful here.
        augment: Random crops, anew in each step.
        normalization: As for `ImageTextSource`.
        cache: Whether to keep decoded pictures in memory (about 50 MB).
    """
    return ImageTextSource(
        _FOLDER,
        tokenizer or icons_tokenizer(),
        image_size,
        max_length,
        split=split,
        augment=augment,
        normalization=normalization,
        cache=cache,
    )


def icons_tokenizer() -> CaptionTokenizer:
    """The packaged tokenizer; its vocabulary was learned from WordNet, not from the captions."""
    return CaptionTokenizer(_PUBLIC_TEXT / "wordnet.txt")


def public_captions() -> list[str]:
    """Noun phrases of WordNet: public text of the captions' kind, to compare with."""
    return (_PUBLIC_TEXT / "public_captions.txt").read_text("utf-8").splitlines()


def icons_manifest() -> dict[str, Any]:
    """Public facts of the packaged icons: counts, splits, labels, licenses, checksums."""
    return read_manifest(_FOLDER)
