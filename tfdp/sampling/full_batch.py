"""Every record in every step."""

import numpy as np

from tfdp import checks
from tfdp.sampling.base import Sampler


class FullBatchSampler(Sampler):
    """Includes every record in every step; the accounting is that of the Gaussian mechanism."""

    name = "full_batch"

    @property
    def expected_batch_size(self) -> float:
        """N."""
        return float(self.num_examples)

    def expected_coverage(self, steps: int) -> float:
        """1 from the first step on."""
        return float(steps > 0)

    def count(self, update: int) -> int:
        """N, whatever the update."""
        checks.non_negative_int("update", update)
        return self.num_examples

    def indices(self, update: int) -> np.ndarray:
        """All indices in order, int64 `[N]`."""
        return np.arange(self.count(update), dtype=np.int64)
