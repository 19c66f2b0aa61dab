"""Pictures with captions, as a source of records."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfdp import checks
from tfdp.captioner.loader import PairLoader
from tfdp.captioner.pair_records import Pair
from tfdp.captioner.pairs import PairFiles, PairList, Pairs
from tfdp.captioner.tokenizer import CaptionTokenizer
from tfdp.data.pictures import RandomResizedCrop
from tfdp.data.source import ExampleSource, Fetched
from tfdp.data.tally import Tally

# Public constants, never statistics of the private pictures. (mean, SD) of each channel in [0, 1].
NORMALIZATIONS = {
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


class ImageTextSource(ExampleSource):
    """Picture-caption pairs, ready for teacher forcing.

    `fetch` returns `x = {"image": float32 [M, S, S, 3], "tokens": int32 [M, L - 1]}` and
    `y = int32 [M, L - 1]`, the same caption one place on, with 0 as padding.

    A picture that cannot be decoded, a missing file and an empty caption make a record invalid.

    Attributes:
      tokenizer: Turns captions into ids.
      image_size: Pixels along a side, S.
      max_length: Ids of a caption with start and end, L.
      label_names: Names of the coarse categories, if the data have any.
    """

    def __init__(
        self,
        records: str | os.PathLike | Sequence[Any] | Pairs,
        tokenizer: CaptionTokenizer,
        image_size: int,
        max_length: int,
        *,
        split: str = "train",
        augment: RandomResizedCrop | None = None,
        normalization: str = "half",
        crop_share: float = 1.0,
        cache: bool = False,
    ):
        """Creates the source.

        Args:
          records: Folder that `launch.prepare_data` made, or a sequence of `(image, caption)`
            where an image is encoded bytes, a path, or uint8 `[H, W, 3]`.
          tokenizer: Turns captions into ids; its vocabulary must be public.
          image_size: Pixels along a side.
          max_length: Ids of a caption with start and end; longer captions are cut and counted.
          split: Which split of a folder.
          augment: Random crops, anew in each step; None takes the middle square.
          normalization: "half" maps to [-1, 1], "imagenet" uses ImageNet's mean and SD.
          crop_share: Side of the middle square over the picture's shorter side, without
            augmentation; 224 / 256 is usual for photographs.
          cache: Whether to keep decoded pictures in memory after their first use.

        Raises:
          FileNotFoundError: If the folder or one of its files is missing.
          TypeError: If an argument is of the wrong kind.
          ValueError: If an argument is out of range.
        """
        super().__init__()
        if normalization not in NORMALIZATIONS:
            raise ValueError(
                f"normalization must be one of {sorted(NORMALIZATIONS)}, got {normalization!r}."
            )
        if checks.positive("crop_share", crop_share) > 1:
            raise ValueError(f"crop_share must be in (0, 1], got {crop_share}.")
        self.tokenizer = tokenizer
        self.image_size = checks.positive_int("image_size", image_size)
        self.max_length = checks.whole(
            "max_length", max_length, least=3, why="start, a token and end"
        )
        self.label_names: list[str] = []
        self._pairs = self._open(records, split)
        self._loader = PairLoader(self._pairs, image_size, crop_share, augment, cache, self._bad)
        self._normalization = NORMALIZATIONS[normalization]
        self._truncated = Tally()

    def _open(self, records: Any, split: str) -> Pairs:
        if isinstance(records, str | os.PathLike):
            files = PairFiles(records, split)
            self.label_names = list(files.manifest["labels"])
            return files
        return records if hasattr(records, "read") else PairList(records)

    def __len__(self) -> int:
        return len(self._pairs)

    @property
    def truncated_captions(self) -> int:
        """Number of distinct records so far whose caption was cut to `max_length` ids.

        An exact fact about private records, like `bad_records`, and covered by no guarantee: it
        is for whoever holds them, not to be published.
        """
        return self._truncated.counts().get("truncated", 0)

    def _tallies(self) -> dict[str, Tally]:
        return {**super()._tallies(), "truncated_captions": self._truncated}

    def fetch(self, indices: tf.Tensor, update: tf.Tensor) -> Fetched:
        """Returns the pairs at `indices`; see `ExampleSource.fetch`."""
        indices = tf.convert_to_tensor(indices, tf.int64)
        update = tf.convert_to_tensor(update, tf.int64)
        pixels, captions, readable = tf.numpy_function(
            self._loader.load, [indices, update], [tf.uint8, tf.string, tf.bool]
        )
        rows = indices.shape[0]
        pixels.set_shape([rows, self.image_size, self.image_size, 3])
        captions.set_shape([rows])
        ids, lengths = self.tokenizer.encode(captions, self.max_length)
        valid = tf.numpy_function(self._judge, [indices, readable, lengths], tf.bool)
        valid.set_shape([rows])
        ids *= tf.cast(valid, tf.int32)[:, None]
        image = self._normalize(pixels) * tf.cast(valid, tf.float32)[:, None, None, None]
        return {"image": image, "tokens": ids[:, :-1]}, ids[:, 1:], None, valid

    def pictures(self, indices: Sequence[int] | None = None) -> np.ndarray:
        """Pixels without augmentation, uint8 `[n, S, S, 3]`; zeros where there is no picture."""
        return self._loader.load(self._chosen(indices), update=None)[0]

    def images(self, indices: Sequence[int] | None = None) -> tf.Tensor:
        """Normalised pictures without augmentation, float32 `[n, S, S, 3]`, as in `fetch`."""
        return self._normalize(tf.constant(self.pictures(indices)))

    def captions(self, indices: Sequence[int] | None = None) -> list[str]:
        """True captions; "" where the record cannot be read."""
        return [p.caption if isinstance(p, Pair) else "" for p in self._read(indices)]

    def labels(self, indices: Sequence[int] | None = None) -> np.ndarray:
        """Indices into `label_names`, int64 `[n]`; -1 where a record has no category."""
        return np.array([p.label if isinstance(p, Pair) else -1 for p in self._read(indices)])

    def _read(self, indices: Sequence[int] | None) -> list[Pair | Exception]:
        return self._pairs.read(self._chosen(indices))

    def _chosen(self, indices: Sequence[int] | None) -> Sequence[int]:
        return range(len(self)) if indices is None else indices

    def _normalize(self, pixels: tf.Tensor) -> tf.Tensor:
        mean, deviation = (tf.constant(values) * 255.0 for values in self._normalization)
        return (tf.cast(pixels, tf.float32) - mean) / deviation

    def _judge(self, indices: np.ndarray, readable: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Counts captions that are empty after tokenization or too long; returns validity."""
        empty = readable & (lengths <= 2)
        long = readable & (lengths > self.max_length)
        if empty.any():
            self._bad.add("empty_caption", indices[empty])
        if long.any():
            self._truncated.add("truncated", indices[long])
        return readable & ~empty
