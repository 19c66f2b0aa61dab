"""Labelled pictures with random access, whatever they are stored in."""

from __future__ import annotations

import abc
from collections.abc import Sequence

import numpy as np


class DatasetError(ValueError):
    """A data set that cannot be opened or does not hold what it should."""


class PictureSet(abc.ABC):
    """The pictures and labels of one split.

    Attributes:
        name: of the data set, for manifests.
        split: "train", "test" or what the data set calls it.
        class_names: K names, in the order of the labels.
    """

    name: str
    split: str
    class_names: Sequence[str]

    @abc.abstractmethod
    def __len__(self) -> int:
        """N."""

    @abc.abstractmethod
    def label(self, index: int) -> int:
        """The class of one picture, 0..K-1; cheap even where the picture is not."""

    @abc.abstractmethod
    def picture(self, index: int) -> np.ndarray:
        """One picture, uint8 `[H, W, 3]`, RGB.

        Raises:
            OSError or ValueError: it cannot be read; extraction counts it and goes on.
        """

    @abc.abstractmethod
    def content(self, index: int) -> bytes:
        """Bytes that follow from this picture alone, the same wherever it stands in the split."""


class ArrayPictures(PictureSet):
    """Pictures in one array.

    Args:
        name, split, class_names: see `PictureSet`.
        pictures: uint8 `[N, H, W]`, `[N, H, W, 1]` or `[N, H, W, 3]`; grey ones are repeated
            over the three colours.
        labels: integers `[N]`.

    Raises:
        DatasetError: shapes or types are of another kind, or a label has no class name.
    """

    def __init__(
        self,
        name: str,
        split: str,
        class_names: Sequence[str],
        pictures: np.ndarray,
        labels: np.ndarray,
    ) -> None:
        what = f"{name}, split {split}"
        if pictures.ndim == 3:
            pictures = pictures[..., None]
        if pictures.dtype != np.uint8 or pictures.ndim != 4 or pictures.shape[-1] not in (1, 3):
            raise DatasetError(
                f"{what}: pictures must be uint8 [N, H, W], [N, H, W, 1] or [N, H, W, 3], got "
                f"{pictures.dtype} {list(pictures.shape)}."
            )
        if labels.shape != pictures.shape[:1]:
            raise DatasetError(f"{what}: {len(pictures)} pictures but labels {labels.shape}.")
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(class_names):
            raise DatasetError(
                f"{what}: labels {labels.min()}..{labels.max()}, {len(class_names)} classes."
            )
        self.name, self.split, self.class_names = name, split, list(class_names)
        self._labels, self._pictures = labels.astype(np.int32), pictures

    def __len__(self) -> int:
        return len(self._labels)

    def label(self, index: int) -> int:
        """The class of one picture."""
        return int(self._labels[index])

    def picture(self, index: int) -> np.ndarray:
        """One picture; see `PictureSet.picture`."""
        return np.broadcast_to(self._pictures[index], (*self._pictures.shape[1:3], 3))

    def content(self, index: int) -> bytes:
        """The pixels."""
        return self._pictures[index].tobytes()
