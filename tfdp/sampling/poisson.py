"""Poisson sampling: each example is included independently with the same probability."""

import math

import numpy as np

from tfdp.sampling.sampler import SeededSampler


class PoissonSampler(SeededSampler):
    """Includes each example independently with probability q, anew in each step.

    The number of examples is drawn first, from Binomial(N, q), then a uniform subset of that
    size: the same distribution as N independent decisions, in time and memory of the subset.
    (Above q = 2% NumPy may use one temporary array of N indices.)

    Batches differ in size and can be empty; both are part of the guarantee, so an empty step
    still adds noise and still counts.
    """

    name = "poisson"

    def __init__(self, num_examples: int, probability: float, seed: int | None = None):
        """Creates the sampler.

        Args:
          num_examples: Dataset size N.
          probability: Sampling probability q of each example in each step, in (0, 1].
          seed: Integer of up to 128 bits, to be kept secret. None draws it from the operating
            system's entropy.

        Raises:
          ValueError: If an argument is out of range.
          TypeError: If a count is not an integer.
        """
        super().__init__(num_examples, seed)
        self._probability = float(probability)
        if not 0.0 < self._probability <= 1.0:
            raise ValueError(
                f"probability must be in (0, 1], got {self._probability}. It is the expected batch "
                "size divided by num_examples; a batch larger than the data cannot be drawn."
            )

    @property
    def probability(self) -> float:
        """Sampling probability q of each example in each step."""
        return self._probability

    @property
    def expected_batch_size(self) -> float:
        """N q."""
        return self.num_examples * self.probability

    def expected_coverage(self, steps: int) -> float:
        """Returns 1 - (1 - q)^steps; 63.2% after 1 / q steps, often called an epoch."""
        if self.probability == 1.0:
            return float(steps > 0)
        return -math.expm1(steps * math.log1p(-self.probability))

    def count(self, step: int) -> int:
        """Returns the number of examples in a step: a draw from Binomial(N, q)."""
        return self._draw_count(self._generator(step))

    def indices(self, step: int) -> np.ndarray:
        """Returns the examples of a step: distinct indices, sorted, int64 `[count(step)]`."""
        rng = self._generator(step)
        return self._subset(rng, self._draw_count(rng))

    def _draw_count(self, rng: np.random.Generator) -> int:
        return int(rng.binomial(self.num_examples, self.probability))
