"""Every example in every step."""

import numpy as np

from tfdp import checks
from tfdp.sampling.sampler import Sampler


class FullBatchSampler(Sampler):
    """Includes every example in every step; the accounting is that of the Gaussian mechanism."""

    name = "full_batch"

    @property
    def expected_batch_size(self) -> float:
        """N."""
        return float(self.num_examples)

    def expected_coverage(self, steps: int) -> float:
        """Returns 1 from the first step on."""
        return float(steps > 0)

    def count(self, step: int) -> int:
        """Returns N, whatever the step."""
        checks.non_negative_int("step", step)
        return self.num_examples

    def indices(self, step: int) -> np.ndarray:
        """Returns all indices in order, int64 `[N]`."""
        return np.arange(self.count(step), dtype=np.int64)
