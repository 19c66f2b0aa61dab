"""What every sampler offers."""

import abc

import numpy as np

from tfdp import checks


class Sampler(abc.ABC):
    """Decides which records take part in each step.

    A draw is a pure function of the sampler's arguments and the number of the update: asking
    for update 1,000 needs no earlier draw, asking twice gives the same answer, and a resumed
    run continues exactly where it stopped.

    Attributes:
      name: Short name of the scheme; the privacy report states it.
    """

    name: str

    def __init__(self, num_examples: int):
        self._num_examples = checks.positive_int("num_examples", num_examples)

    @property
    def num_examples(self) -> int:
        """Number of records that are sampled from (public)."""
        return self._num_examples

    @property
    @abc.abstractmethod
    def expected_batch_size(self) -> float:
        """Expected number of records in a step (public: it divides the noisy sum)."""

    @abc.abstractmethod
    def count(self, update: int) -> int:
        """Number of records in update `update`, without drawing them."""

    @abc.abstractmethod
    def indices(self, update: int) -> np.ndarray:
        """Records of update `update`: distinct indices, sorted, int64 `[count(update)]`."""

    @abc.abstractmethod
    def expected_coverage(self, steps: int) -> float:
        """Expected share of the records that take part at least once in `steps` steps."""
