"""Features of every picture of a source, for probes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfdp.data import ExampleSource, batches
from tfdp.data.example_source import Fetched


def extract_features(
    function: Callable[[Any], tf.Tensor],
    source: ExampleSource,
    *,
    batch_size: int = 64,
    limit: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Applies a function to the inputs of every record.

    Args:
        function: maps a batch of the source's inputs to `[B, ...]`, for instance
            `lambda x: model.features(x["image"])`.
        source: the records.
        batch_size: records a call.
        limit: only this many records from the start, all when None.

    Returns:
        `(features, kept)`: float32 `[K, D]`, flattened to one row a record, and int64 `[K]`, the
        indices of the records that could be decoded.
    """
    compiled = tf.function(function, autograph=False, reduce_retracing=True)
    rows, kept = [], []
    for (x, index), *_ in batches(NumberedExamples(source, limit), batch_size):
        values = np.asarray(compiled(x), dtype=np.float32)
        rows.append(values.reshape(len(values), -1))
        kept.append(index.numpy())
    return np.concatenate(rows), np.concatenate(kept)


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
