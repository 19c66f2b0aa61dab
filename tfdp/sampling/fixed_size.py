"""Batches of one fixed size, drawn without replacement."""

import math

import numpy as np

from tfdp import checks
from tfdp.sampling.sampler import SeededSampler


class FixedSizeSampler(SeededSampler):
    """Draws a uniform subset of exactly `batch_size` examples, anew in each step.

    This is not Poisson sampling: its amplification differs and holds for replacing an example,
    not for adding or removing one. Account for it as what it is.
    """

    name = "fixed_size"

    def __init__(self, num_examples: int, batch_size: int, seed: int | None = None):
        """Creates the sampler.

        Args:
          num_examples: Dataset size N.
          batch_size: Number of distinct examples in each step, in [1, N].
          seed: Integer of up to 128 bits, to be kept secret. None draws it from the operating
            system's entropy.

        Raises:
          ValueError: If an argument is out of range.
          TypeError: If a count is not an integer.
        """
        super().__init__(num_examples, seed)
        self._batch_size = checks.positive_int("batch_size", batch_size)
        if self._batch_size > self.num_examples:
            raise ValueError(
                f"batch_size must be at most num_examples = {self.num_examples}, got {batch_size}."
            )

    @property
    def expected_batch_size(self) -> float:
        """The batch size itself."""
        return float(self._batch_size)

    def expected_coverage(self, steps: int) -> float:
        """Returns 1 - (1 - batch_size / N)^steps."""
        if self._batch_size == self.num_examples:
            return float(steps > 0)
        return -math.expm1(steps * math.log1p(-self._batch_size / self.num_examples))

    def count(self, step: int) -> int:
        """Returns the batch size, whatever the step."""
        checks.non_negative_int("step", step)
        return self._batch_size

    def indices(self, step: int) -> np.ndarray:
        """Returns the examples of a step: distinct indices, sorted, int64 `[batch_size]`."""
        return self._subset(self._generator(step), self._batch_size)
