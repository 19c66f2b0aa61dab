"""Pictures that are the same, or look the same."""

from collections.abc import Sequence

import numpy as np
from PIL import Image

_SIDE = 16  # of the thumbnails that are compared
# Root mean square differences below which two pictures look the same, in units of the full range.
_NEAR = 0.02
_NEAR_IN_CONCEPT = 0.06
_BLOCK = 1024


def equal_pictures(digests: Sequence[str]) -> np.ndarray:
    """Marks pictures whose digest occurred before, bool `[N]`."""
    seen: set[str] = set()
    marks = np.zeros(len(digests), bool)
    for i, digest in enumerate(digests):
        marks[i] = digest in seen
        seen.add(digest)
    return marks


def equal_pairs(
    digests: Sequence[str], captions: Sequence[str], held_out: Sequence[bool]
) -> np.ndarray:
    """Marks pairs that add nothing, or that would show a picture of one split to the other.

    A picture may come back under another name, but not with the same one, and not on the other
    side of the split.

    Args:
      digests: Of the pixels, `[N]`.
      captions: `[N]`.
      held_out: Whether each pair belongs to the test split, `[N]`.

    Returns:
      bool `[N]`.
    """
    side: dict[str, bool] = {}
    seen: set[tuple[str, str]] = set()
    marks = np.zeros(len(digests), bool)
    for i, (digest, caption, test) in enumerate(zip(digests, captions, held_out, strict=True)):
        marks[i] = (digest, caption) in seen or side.setdefault(digest, test) != test
        seen.add((digest, caption))
    return marks


def similar_pictures(thumbnails: np.ndarray, concepts: Sequence[str]) -> np.ndarray:
    """Marks pictures that look like an earlier one that stays, bool `[N]`.

    Pictures of one concept may differ by more than pictures of two: a clock at seven is not a
    duplicate of a clock at eight, but two red apples of nearly the same drawing are.

    Args:
      thumbnails: float32 `[N, D]` from `thumbnail`, in order of precedence.
      concepts: What each picture is about, `[N]`.
    """
    count, width = thumbnails.shape
    norms = np.einsum("nd,nd->n", thumbnails, thumbnails)
    concept_ids = np.unique(np.asarray(concepts), return_inverse=True)[1]
    marks = np.zeros(count, bool)
    for start in range(0, count, _BLOCK):
        block, before = slice(start, start + _BLOCK), slice(0, start + _BLOCK)
        squares = norms[block, None] + norms[None, before]
        squares -= 2 * thumbnails[block] @ thumbnails[before].T
        same = concept_ids[block, None] == concept_ids[None, before]
        close = squares < width * np.where(same, _NEAR_IN_CONCEPT, _NEAR) ** 2
        for row, neighbours in enumerate(close, start):
            marks[row] = bool(np.any(neighbours[:row] & ~marks[:row]))
    return marks


def thumbnail(picture: np.ndarray) -> np.ndarray:
    """Returns a picture's 16 x 16 colours in [0, 1], float32 `[768]`: its perceptual hash."""
    small = Image.fromarray(picture).resize((_SIDE, _SIDE), Image.Resampling.BOX)
    return np.asarray(small, np.float32).ravel() / 255
