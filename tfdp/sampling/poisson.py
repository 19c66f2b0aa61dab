"""Poisson sampling: each record takes part independently with the same probability."""

import math

import numpy as np

from tfdp.sampling.base import Sampler
from tfdp.sampling.randomness import as_seed, generator


class PoissonSampler(Sampler):
    """Includes each record independently with probability q, anew in each step.

    The number of records is drawn first, from Binomial(N, q), then a uniform subset of that
    size: the same distribution as N independent coins, in time and memory of the subset.
    (Above q = 2 % NumPy may use one temporary array of N indices.)

    Batches differ in size and can be empty; both are part of the guarantee, so an empty step
    still adds noise and still counts.
    """

    name = "poisson"

    def __init__(self, num_examples: int, probability: float, seed: int | None = None):
        """Creates the sampler.

        Args:
          num_examples: Number of records N.
          probability: Probability q of each record in each step, in (0, 1].
          seed: Integer of up to 128 bits. None draws it from the operating system's entropy.
            Keep it secret: who knows it knows who was sampled, and the amplification is gone.

        Raises:
          ValueError: If an argument is out of range.
          TypeError: If a count is not an integer.
        """
        super().__init__(num_examples)
        probability = float(probability)
        if not 0.0 < probability <= 1.0:
            raise ValueError(
                f"probability must be in (0, 1], got {probability}. It is the expected batch "
                "size divided by num_examples; a batch larger than the data cannot be drawn."
            )
        self._probability = probability
        self._seed = as_seed(seed)

    @property
    def probability(self) -> float:
        """Probability q of each record in each step."""
        return self._probability

    @property
    def seed(self) -> int:
        """The 128-bit seed. Needed to resume a run; secret like the records themselves."""
        return self._seed

    @property
    def expected_batch_size(self) -> float:
        """N q."""
        return self.num_examples * self.probability

    def expected_coverage(self, steps: int) -> float:
        """1 - (1 - q)^steps; 63.2 % after the 1 / q steps that are often called an epoch."""
        if self.probability == 1.0:
            return float(steps > 0)
        return -math.expm1(steps * math.log1p(-self.probability))

    def count(self, update: int) -> int:
        """Number of records in update `update`: a draw from Binomial(N, q)."""
        return self._draw_count(generator(self._seed, update))

    def indices(self, update: int) -> np.ndarray:
        """Records of update `update`: distinct indices, sorted, int64 `[count(update)]`."""
        rng = generator(self._seed, update)
        count = self._draw_count(rng)
        subset = rng.choice(self.num_examples, count, replace=False, shuffle=False)
        subset.sort()
        return subset

    def _draw_count(self, rng: np.random.Generator) -> int:
        return int(rng.binomial(self.num_examples, self.probability))
