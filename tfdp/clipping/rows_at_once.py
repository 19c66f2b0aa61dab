"""How many rows are best handled at a time."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tfdp.clipping.devices import only_cpus

_CHOICES = 200  # sizes that are compared, of either kind


class Device(NamedTuple):
    """What one kind of device asks of a microbatch.

    Attributes:
      limit: Bytes that its rows may take.
      overhead: What beginning another one and adding up its sums costs, in bytes of rows whose
        handling takes as long.
    """

    limit: int
    overhead: int


# On two cores of a CPU, microbatches of 14 to 15 MB took twice as long a row as large ones, for
# captioners of 0.3 and 6 million weights and a language model of 10 million. Above some hundred
# MB a row takes up to a tenth longer: its intermediates have left the caches when the sums are
# formed. Accelerators are hundreds of times as fast on rows, but not on what comes beside them.
_CPU = Device(limit=2**30, overhead=2**24)
_ACCELERATOR = Device(limit=2**32, overhead=2**29)


def rows_at_once(
    row_bytes: int, counts: np.ndarray, probabilities: np.ndarray, sharing: int = 1
) -> int:
    """Returns the size of microbatches that is expected to take least time within the memory.

    Microbatches have one static shape, so that the last one of a step is filled up with padding
    that takes as long as rows: many small ones waste less on it, but each costs something itself.

    Args:
      row_bytes: What one row takes.
      counts: ``[K]`` integers: the numbers of rows that a step may have.
      probabilities: ``[K]``: how likely each of them is.
      sharing: Replicas that handle the microbatches of a step side by side.
    """
    device = _CPU if only_cpus() else _ACCELERATOR
    fit = max(1, device.limit // max(row_bytes, 1))
    largest = max(1, math.ceil(counts.max() / sharing))
    even = np.ceil(largest / np.arange(1, _CHOICES))  # parts of a largest update without padding
    sizes = np.unique(np.rint([*np.geomspace(1, largest, _CHOICES), *even]).astype(np.int64))
    sizes = sizes[sizes <= fit]
    turns = [probabilities @ np.maximum(np.ceil(counts / (size * sharing)), 1) for size in sizes]
    overhead = device.overhead / max(row_bytes, 1)  # in rows
    return int(sizes[np.argmin(turns * (sizes + overhead))])
