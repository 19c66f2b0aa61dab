"""Some records of a source, each with its number."""

import tensorflow as tf

from tfdp.data import ExampleSource
from tfdp.data.source import Fetched


class NumberedExamples(ExampleSource):
    """The first records of a source; `x` becomes `(x, index)`.

    The index survives where unreadable records are left out, so that labels can be lined up.
    """

    def __init__(self, source: ExampleSource, limit: int | None = None):
        """Creates the source.

        Args:
            source: where the records come from.
            limit: how many of them, from the start; all when None.

        Raises:
            ValueError: if there is no record, or the limit is below 1.
        """
        super().__init__()
        if limit is not None and limit < 1:
            raise ValueError(f"limit must be at least 1 or None, got {limit}.")
        self._source = source
        self._length = len(source) if limit is None else min(limit, len(source))
        if self._length == 0:
            raise ValueError("The source holds no records, so there is nothing to evaluate.")

    def __len__(self) -> int:
        return self._length

    def fetch(self, indices: tf.Tensor, update: tf.Tensor) -> Fetched:
        """The records of the source, with `indices` beside `x`; see `ExampleSource.fetch`."""
        x, y, sample_weight, valid = self._source.fetch(indices, update)
        return (x, indices), y, sample_weight, valid
