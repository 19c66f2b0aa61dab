"""Reading and decoding picture-caption pairs, whatever is wrong with some of them."""

from collections.abc import Sequence

import numpy as np

from tfdp.captioner.pair_records import Pair
from tfdp.captioner.pairs import Pairs
from tfdp.data.pictures import RandomResizedCrop, center_square, open_picture
from tfdp.data.tally import Tally

Decoded = tuple[np.ndarray, str]


class PairLoader:
    """Loads pairs as pixels and text.

    Args:
      pairs: The records.
      size: Pixels along a side.
      crop_share: Side of the middle square over the picture's shorter side.
      augment: Random crops; None takes the middle square.
      cache: Whether to keep decoded pictures in memory after their first use.
      bad: Where records that cannot be read are counted.
    """

    def __init__(
        self,
        pairs: Pairs,
        size: int,
        crop_share: float,
        augment: RandomResizedCrop | None,
        cache: bool,
        bad: Tally,
    ):
        self._pairs = pairs
        self._size = size
        self._crop_share = crop_share
        self._augment = augment
        self._cache: dict[int, Decoded] | None = {} if cache else None
        self._bad = bad

    def load(
        self, indices: Sequence[int] | np.ndarray, update: int | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns pixels uint8 `[M, S, S, 3]`, captions `[M]`, and bool `[M]`: which are real.

        Args:
          indices: Records; repeated ones are decoded once.
          update: Number of the update, which seeds the augmentation; None leaves it out.
        """
        unique, places = np.unique(np.asarray(indices, np.int64), return_inverse=True)
        pixels = np.zeros((len(unique), self._size, self._size, 3), np.uint8)
        captions = np.full(len(unique), b"", object)
        readable = np.zeros(len(unique), bool)
        records = unique.tolist()
        for row, (record, decoded) in enumerate(zip(records, self._decoded(records), strict=True)):
            if isinstance(decoded, str):
                self._bad.add(decoded, [record])
                continue
            picture, caption = decoded
            pixels[row] = self._pixels(picture, record, update)
            captions[row], readable[row] = caption.encode(), True
        return pixels[places], captions[places], readable[places]

    def _pixels(self, picture: np.ndarray, record: int, update: int | None) -> np.ndarray:
        if self._augment is None or update is None:
            return center_square(picture, self._size, self._crop_share)
        return self._augment(picture, self._size, record, update)

    def _decoded(self, records: list[int]) -> list[Decoded | str]:
        """Picture and caption of each record, or why there is none."""
        cache = {} if self._cache is None else self._cache
        missing = [record for record in records if record not in cache]
        pairs = self._pairs.read(missing)
        fresh = {record: _decode(pair) for record, pair in zip(missing, pairs, strict=True)}
        if self._cache is not None:
            self._cache.update({r: d for r, d in fresh.items() if not isinstance(d, str)})
        return [fresh[record] if record in fresh else cache[record] for record in records]


def _decode(pair: Pair | Exception) -> Decoded | str:
    """Picture and caption, or the reason that `bad_records` shows."""
    if isinstance(pair, Exception):
        return "unreadable_record"
    if not pair.caption.strip():
        return "empty_caption"
    try:
        return open_picture(pair.image), pair.caption
    except FileNotFoundError:
        return "missing_file"
    except Exception:  # Pillow raises many kinds for damaged pictures
        return "corrupt_picture"
