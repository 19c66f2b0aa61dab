"""Pictures as the rows of a study: split, sampled from, and judged by."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from tfdp.data import ExampleSource, IndexableSource
from tfdp.data.pictures import center_square
from tfdp.transfer.datasets import PictureSet


class Pictures:
    """Some pictures of a split, each a middle square of `size` pixels.

    Args:
        pictures: the split.
        size: side in pixels.
        chosen: indices into the split; all when None.
    """

    def __init__(self, pictures: PictureSet, size: int, chosen: np.ndarray | None = None) -> None:
        self._pictures, self._size = pictures, size
        self._chosen = np.arange(len(pictures)) if chosen is None else chosen
        self.num_classes = len(pictures.class_names)
        #: How many more or less than stated are no mistake; see `held_out.split_rows`.
        self.stray = 0.0

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """RGB in 0..255, float32 `[S, S, 3]`, and the label, int32."""
        own = int(self._chosen[index])
        square = center_square(self._pictures.picture(own), self._size)
        return square.astype(np.float32), np.asarray(self._pictures.label(own), np.int32)

    def subset(self, chosen: np.ndarray) -> Pictures:
        """Those where `chosen` `[N]` is true."""
        return Pictures(self._pictures, self._size, self._chosen[chosen])

    def contents(self) -> Iterator[bytes]:
        """Of every picture, in order, bytes that follow from it alone."""
        return (self._pictures.content(int(index)) for index in self._chosen)

    def source(self) -> ExampleSource:
        """Records to sample from; pictures that cannot be read contribute nothing."""
        spec = (tf.TensorSpec([self._size, self._size, 3], tf.float32), tf.TensorSpec([], tf.int32))
        return IndexableSource(self, element_spec=spec)
