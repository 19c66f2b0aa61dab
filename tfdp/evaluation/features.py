"""Features of every picture of a source, for probes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfdp.data import ExampleSource, batches
from tfdp.evaluation.numbered import NumberedExamples


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
