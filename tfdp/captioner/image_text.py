"""Pictures with captions, as examples for training."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfdp import checks
from tfdp.captioner.pairs import Pair, PairFiles, PairList, Pairs
from tfdp.captioner.tokenizer import CaptionTokenizer
from tfdp.data.example_source import ExampleSource, Fetched
from tfdp.data.pictures import RandomResizedCrop, center_square, open_picture
from tfdp.data.tally import Tally

Decoded = tuple[np.ndarray, str]

# Public constants, never statistics of the private pictures. (mean, SD) of each channel in [0, 1].
_NORMALIZATIONS = {
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


class ImageTextSource(ExampleSource):
    """Picture-caption pairs, ready for teacher forcing.

    `fetch` returns `x = {"image": float32 [M, S, S, 3], "tokens": int32 [M, L - 1]}` and
    `y = int32 [M, L - 1]`, the same caption shifted by one token, padded with 0.

    A picture that cannot be decoded, a missing file and an empty caption make an example invalid.

    Attributes:
        tokenizer: Turns captions into ids.
        image_size: Pixels along a side, S.
        max_length: Ids of a caption with start and end, L.
        label_names: Names of the coarse categories, if the data have any.
    """

    def __init__(
        self,
        pairs: str | os.PathLike | Sequence[Any] | Pairs,
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
            pairs: Folder that `launch.prepare_data` made, or a sequence of `(image, caption)`
                where an image is encoded bytes, a path, or uint8 `[H, W, 3]`.
            tokenizer: Turns captions into ids; its vocabulary must be public.
            image_size: Pixels along a side.
            max_length: Ids of a caption with start and end; longer captions are cut and counted.
            split: Which split of a folder.
            augment: Random crops, drawn anew in each step; None takes the middle square.
            normalization: "half" maps to [-1, 1], "imagenet" uses ImageNet's mean and SD.
            crop_share: Side of the middle square over the picture's shorter side, without
                augmentation; 224 / 256 is usual for photographs.
            cache: Whether to keep decoded pictures in memory after their first use.

        Raises:
            FileNotFoundError: The folder or one of its files is missing.
            TypeError: An argument is of the wrong kind.
            ValueError: An argument is out of range.
        """
        super().__init__()
        self.tokenizer = tokenizer
        self.image_size = checks.positive_int("image_size", image_size)
        self.max_length = checks.whole(
            "max_length", max_length, least=3, why="start, a token and end"
        )
        pixel_statistics(normalization)  # raises if there is none of that name
        self._normalization = normalization
        self._crop_share = checked_crop_share(crop_share)
        self.label_names: list[str] = []
        if isinstance(pairs, str | os.PathLike):
            pairs = PairFiles(pairs, split)
            self.label_names = list(pairs.manifest["labels"])
        self._pairs: Pairs = pairs if hasattr(pairs, "read") else PairList(pairs)
        self._augment = augment
        self._cache: dict[int, Decoded] | None = {} if cache else None
        self._truncated = Tally()

    def __len__(self) -> int:
        return len(self._pairs)

    @property
    def truncated_captions(self) -> int:
        """Number of distinct examples so far whose caption was cut to `max_length` ids.

        An exact fact about private examples, like `bad_records`, and covered by no guarantee: it
        is for whoever holds them, not to be released.
        """
        return self._truncated.counts().get("truncated", 0)

    def _tallies(self) -> dict[str, Tally]:
        return {**super()._tallies(), "truncated_captions": self._truncated}

    def fetch(self, indices: tf.Tensor, step: tf.Tensor) -> Fetched:
        """Returns the pairs at `indices`; see `ExampleSource.fetch`."""
        indices = tf.convert_to_tensor(indices, tf.int64)
        step = tf.convert_to_tensor(step, tf.int64)
        pixels, captions, readable = tf.numpy_function(
            self._load, [indices, step], [tf.uint8, tf.string, tf.bool]
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
        return self._load(self._chosen(indices), step=None)[0]

    def images(self, indices: Sequence[int] | None = None) -> tf.Tensor:
        """Normalized pictures without augmentation, float32 `[n, S, S, 3]`, as in `fetch`."""
        return self._normalize(tf.constant(self.pictures(indices)))

    def captions(self, indices: Sequence[int] | None = None) -> list[str]:
        """True captions; "" where the pair cannot be read."""
        return [p.caption if isinstance(p, Pair) else "" for p in self._read(indices)]

    def labels(self, indices: Sequence[int] | None = None) -> np.ndarray:
        """Indices into `label_names`, int64 `[n]`; -1 where a picture has no category."""
        return np.array([p.label if isinstance(p, Pair) else -1 for p in self._read(indices)])

    def _read(self, indices: Sequence[int] | None) -> list[Pair | Exception]:
        return self._pairs.read(self._chosen(indices))

    def _chosen(self, indices: Sequence[int] | None) -> Sequence[int]:
        return range(len(self)) if indices is None else indices

    def _normalize(self, pixels: tf.Tensor) -> tf.Tensor:
        mean, deviation = pixel_statistics(self._normalization)
        return (tf.cast(pixels, tf.float32) - mean) / deviation

    def _load(
        self, indices: Sequence[int] | np.ndarray, step: int | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns pixels uint8 `[M, S, S, 3]`, captions `[M]`, and bool `[M]`: which are real.

        Args:
            indices: Examples; repeated ones are decoded once.
            step: The step, which seeds the augmentation; None leaves it out.
        """
        unique, places = np.unique(np.asarray(indices, np.int64), return_inverse=True)
        examples = unique.tolist()
        pixels = np.zeros((len(unique), self.image_size, self.image_size, 3), np.uint8)
        captions = np.full(len(unique), b"", object)
        readable = np.zeros(len(unique), bool)
        for row, (example, decoded) in enumerate(
            zip(examples, self._decoded(examples), strict=True)
        ):
            if isinstance(decoded, str):
                self._bad.add(decoded, [example])
                continue
            picture, caption = decoded
            pixels[row] = self._square(picture, example, step)
            captions[row], readable[row] = caption.encode(), True
        return pixels[places], captions[places], readable[places]

    def _square(self, picture: np.ndarray, example: int, step: int | None) -> np.ndarray:
        if self._augment is None or step is None:
            return center_square(picture, self.image_size, self._crop_share)
        return self._augment(picture, self.image_size, example, step)

    def _decoded(self, examples: list[int]) -> list[Decoded | str]:
        """Picture and caption of each example, or why there is none."""
        cache = {} if self._cache is None else self._cache
        missing = [example for example in examples if example not in cache]
        pairs = self._pairs.read(missing)
        fresh = {example: _decode(pair) for example, pair in zip(missing, pairs, strict=True)}
        if self._cache is not None:
            self._cache.update({e: d for e, d in fresh.items() if not isinstance(d, str)})
        return [fresh[e] if e in fresh else cache[e] for e in examples]

    def _judge(self, indices: np.ndarray, readable: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Counts captions that are empty after tokenization or too long; returns validity."""
        empty = readable & (lengths <= 2)
        long = readable & (lengths > self.max_length)
        if empty.any():
            self._bad.add("empty_caption", indices[empty])
        if long.any():
            self._truncated.add("truncated", indices[long])
        return readable & ~empty


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


def pixel_statistics(normalization: str) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and standard deviation of a normalization, of pixels in [0, 255], each float32 [3].

    Raises:
        ValueError: There is no such normalization.
    """
    if normalization not in _NORMALIZATIONS:
        raise ValueError(
            f"normalization must be one of {sorted(_NORMALIZATIONS)}, got {normalization!r}."
        )
    mean, deviation = (tf.constant(values) * 255.0 for values in _NORMALIZATIONS[normalization])
    return mean, deviation


def checked_crop_share(crop_share: float) -> float:
    """`crop_share`, if it is a number in (0, 1]."""
    if checks.positive("crop_share", crop_share) > 1:
        raise ValueError(f"crop_share must be in (0, 1], got {crop_share}.")
    return crop_share
