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
    """Applies a function to the inputs of every example.

    Args:
        function: Maps a batch of the source's inputs to `[B, ...]`, for instance
            `lambda x: model.features(x["image"])`.
        source: The examples.
        batch_size: Examples per call.
        limit: Only this many examples from the start, all when None.

    Returns:
        `(features, kept)`: float32 `[K, D]`, flattened to one row per example, and int64 `[K]`, the
        indices of the examples that could be decoded.
    """
    compiled = tf.function(function, autograph=False, reduce_retracing=True)
    rows, kept = [], []
    for (x, index), *_ in batches(NumberedExamples(source, limit), batch_size):
        values = np.asarray(compiled(x), dtype=np.float32)
        rows.append(values.reshape(len(values), -1))
        kept.append(index.numpy())
    return np.concatenate(rows), np.concatenate(kept)


class NumberedExamples(ExampleSource):
    """The first examples of a source; `x` becomes `(x, index)`.

    The index survives where unreadable examples are skipped, so that labels can be lined up.
    """

    def __init__(self, source: ExampleSource, limit: int | None = None):
        """Creates the source.

        Args:
            source: Where the examples come from.
            limit: How many of them, from the start; all when None.

        Raises:
            ValueError: If there is no example, or the limit is below 1.
        """
        super().__init__()
        if limit is not None and limit < 1:
            raise ValueError(f"limit must be at least 1 or None, got {limit}.")
        self._source = source
        self._length = len(source) if limit is None else min(limit, len(source))
        if self._length == 0:
            raise ValueError("The source holds no examples, so there is nothing to evaluate.")

    def __len__(self) -> int:
        return self._length

    def fetch(self, indices: tf.Tensor, step: tf.Tensor) -> Fetched:
        """The examples of the source, with `indices` beside `x`; see `ExampleSource.fetch`."""
        x, y, sample_weight, valid = self._source.fetch(indices, step)
        return (x, indices), y, sample_weight, valid
