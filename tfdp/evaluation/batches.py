"""Every record of a source once, in order, in batches of one static shape."""

import numpy as np
import tensorflow as tf

from tfdp.data import RecordSource


def batches(source: RecordSource, batch_size: int, limit: int | None = None) -> tf.data.Dataset:
    """The records of a source in order, the last batch padded to full size.

    Args:
        source: where the records come from; every record is fetched as update 0 of the run.
        batch_size: records a batch.
        limit: only this many records from the start, all when None.

    Returns:
        A dataset of `(x, y, valid)`; `valid` is bool `[batch_size]`, False for rows that the source
        could not decode and for the padding of the last batch.

    Raises:
        ValueError: if there is no record, or a size is below 1.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1 or None, got {limit}.")
    count = len(source) if limit is None else min(limit, len(source))
    if count == 0:
        raise ValueError("The source holds no records, so there is nothing to evaluate.")

    padded = -(-count // batch_size) * batch_size
    positions = np.arange(padded, dtype=np.int64).reshape(-1, batch_size)

    def fetch(position: tf.Tensor) -> tuple:
        real = position < count
        x, y, _, valid = source.fetch(tf.where(real, position, 0), tf.constant(0, tf.int64))
        return x, y, valid & real

    dataset = tf.data.Dataset.from_tensor_slices(positions)
    return dataset.map(fetch, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
