"""Batches of one fixed size, drawn without replacement."""

import math

import numpy as np

from tfdp import checks
from tfdp.sampling.base import Sampler
from tfdp.sampling.randomness import as_seed, generator


class FixedSizeSampler(Sampler):
    """Draws a uniform subset of exactly `batch_size` records, anew in each step.

    This is not Poisson sampling: its amplification differs and holds for replacing a record,
    not for adding or removing one. Account for it as what it is.
    """

    name = "fixed_size"

    def __init__(self, num_examples: int, batch_size: int, seed: int | None = None):
        """Creates the sampler.

        Args:
          num_examples: Number of records N.
          batch_size: Number of distinct records in each step, in [1, N].
          seed: Integer of up to 128 bits. None draws it from the operating system's entropy.

        Raises:
          ValueError: If an argument is out of range.
          TypeError: If a count is not an integer.
        """
        super().__init__(num_examples)
        self._batch_size = checks.positive_int("batch_size", batch_size)
        if self._batch_size > self.num_examples:
            raise ValueError(
                f"batch_size must be at most num_examples = {self.num_examples}, got {batch_size}."
            )
        self._seed = as_seed(seed)

    @property
    def seed(self) -> int:
        """The 128-bit seed. Needed to resume a run; secret like the records themselves."""
        return self._seed

    @property
    def expected_batch_size(self) -> float:
        """The batch size itself."""
        return float(self._batch_size)

    def expected_coverage(self, steps: int) -> float:
        """1 - (1 - batch_size / N)^steps."""
        if self._batch_size == self.num_examples:
            return float(steps > 0)
        return -math.expm1(steps * math.log1p(-self._batch_size / self.num_examples))

    def count(self, update: int) -> int:
        """The batch size, whatever the update."""
        checks.non_negative_int("update", update)
        return self._batch_size

    def indices(self, update: int) -> np.ndarray:
        """Records of update `update`: distinct indices, sorted, int64 `[batch_size]`."""
        rng = generator(self._seed, update)
        subset = rng.choice(self.num_examples, self._batch_size, replace=False, shuffle=False)
        subset.sort()
        return subset
