"""What every sampler offers: who takes part in a step, and how a draw becomes microbatches."""

import abc
import secrets

import numpy as np

from tfdp import checks

_SEED_BITS = 128


class Sampler(abc.ABC):
    """Decides which examples take part in each step.

    A draw is a pure function of the sampler's arguments and the number of the step: asking for
    step 1,000 needs no earlier draw, asking twice gives the same answer, and a resumed run
    continues exactly where it stopped. Where a user is what is protected, the sampler draws users
    instead of examples (see `UserExamples`).

    Attributes:
      name: Short name of the scheme; the privacy report states it.
    """

    name: str

    def __init__(self, num_examples: int):
        self._num_examples = checks.positive_int("num_examples", num_examples)

    @property
    def num_examples(self) -> int:
        """Dataset size N (public)."""
        return self._num_examples

    @property
    @abc.abstractmethod
    def expected_batch_size(self) -> float:
        """Expected number of examples in a step (public: it divides the noisy sum)."""

    @abc.abstractmethod
    def count(self, step: int) -> int:
        """Returns the number of examples in a step, without drawing them."""

    @abc.abstractmethod
    def indices(self, step: int) -> np.ndarray:
        """Returns the examples of a step: distinct indices, sorted, int64 `[count(step)]`."""

    @abc.abstractmethod
    def expected_coverage(self, steps: int) -> float:
        """Returns the expected fraction of examples that take part in at least one of `steps`."""


class SeededSampler(Sampler):
    """A sampler that draws at random."""

    def __init__(self, num_examples: int, seed: int | None):
        super().__init__(num_examples)
        # Amplification by sampling holds only while nobody else can tell who was drawn, so a seed
        # that was not asked for must not be guessable.
        seed = secrets.randbits(_SEED_BITS) if seed is None else checks.whole("seed", seed)
        if not 0 <= seed < 2**_SEED_BITS:
            raise ValueError(f"seed must be in [0, 2**{_SEED_BITS}), got {seed}.")
        self._seed = seed

    @property
    def seed(self) -> int:
        """The 128-bit seed. Needed to resume a run, and as secret as the examples."""
        return self._seed

    def _generator(self, step: int) -> np.random.Generator:
        """Returns the random number generator of one step.

        Philox is keyed by the seed; the number of the step fills the upper half of its 256-bit
        counter, so that the streams of two steps are 2**128 blocks apart and never meet.
        """
        counter = checks.non_negative_int("step", step) << 128
        return np.random.Generator(np.random.Philox(key=self._seed, counter=counter))

    def _subset(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Draws `count` distinct examples uniformly: sorted indices, int64 `[count]`."""
        subset = rng.choice(self.num_examples, count, replace=False, shuffle=False)
        subset.sort()
        return subset


def split_into_microbatches(
    indices: np.ndarray, size: int, multiple_of: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Splits a batch into microbatches of a fixed shape, padded and masked, dropping nothing.

    An empty batch gives microbatches of padding only: the step still happens, as noise alone.

    Args:
      indices: The examples of one step, int64 `[count]`, `count >= 0`.
      size: Examples in a microbatch.
      multiple_of: Rounds the number of microbatches up to a multiple of this, so that every
        replica gets as many as every other.

    Returns:
      `(microbatches, mask)`: int64 `[microbatches, size]`, padded with index 0, and bool
      `[microbatches, size]`, False on the padding.
    """
    size = checks.positive_int("size", size)
    multiple_of = checks.positive_int("multiple_of", multiple_of)
    at_once = size * multiple_of
    capacity = max(1, -(-len(indices) // at_once)) * at_once
    padded = np.zeros(capacity, np.int64)
    padded[: len(indices)] = indices
    mask = np.arange(capacity) < len(indices)
    return padded.reshape(-1, size), mask.reshape(-1, size)
