"""Batches of any size as microbatches of one fixed shape."""

import numpy as np

from tfdp import checks


def split_into_chunks(
    indices: np.ndarray, size: int, multiple_of: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Splits a batch into microbatches of a fixed shape, padded and masked, dropping nothing.

    An empty batch gives microbatches of padding only: the update still happens, as noise alone.

    Args:
      indices: The records of one step, int64 `[count]`, `count >= 0`.
      size: Records in a microbatch.
      multiple_of: Rounds the number of microbatches up to a multiple of this, so that every
        replica gets as many as every other.

    Returns:
      `(chunks, mask)`: int64 `[chunks, size]`, padded with index 0, and bool `[chunks, size]`,
      False on the padding.
    """
    size = checks.positive_int("size", size)
    multiple_of = checks.positive_int("multiple_of", multiple_of)
    step = size * multiple_of
    capacity = max(1, -(-len(indices) // step)) * step
    padded = np.zeros(capacity, np.int64)
    padded[: len(indices)] = indices
    mask = np.arange(capacity) < len(indices)
    return padded.reshape(-1, size), mask.reshape(-1, size)
