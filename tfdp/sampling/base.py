"""What every sampler offers."""

import abc
import operator

import numpy as np


class Sampler(abc.ABC):
    """Decides which records take part in each update.

    A draw is a pure function of the sampler's arguments and the number of the update: asking
    for update 1,000 needs no earlier draw, asking twice gives the same answer, and a resumed
    run continues exactly where it stopped.

    Attributes:
      name: Short name of the scheme; the privacy report states it.
    """

    name: str

    def __init__(self, num_examples: int):
        self._num_examples = as_positive_int(num_examples, "num_examples")

    @property
    def num_examples(self) -> int:
        """Number of records that are sampled from (public)."""
        return self._num_examples

    @property
    @abc.abstractmethod
    def expected_batch_size(self) -> float:
        """Expected number of records in an update (public: it divides the noisy sum)."""

    @abc.abstractmethod
    def count(self, update: int) -> int:
        """Number of records in update `update`, without drawing them."""

    @abc.abstractmethod
    def indices(self, update: int) -> np.ndarray:
        """Records of update `update`: distinct indices, sorted, int64 `[count(update)]`."""

    @abc.abstractmethod
    def expected_coverage(self, updates: int) -> float:
        """Expected share of the records that take part at least once in `updates` updates."""


def as_positive_int(value: int, argument: str) -> int:
    """Returns `value` as an int, or says which argument should have been one."""
    if as_int(value, argument) < 1:
        raise ValueError(f"{argument} must be at least 1, got {value}.")
    return as_int(value, argument)


def as_update(update: int) -> int:
    """Returns the number of an update as an int >= 0."""
    if as_int(update, "update") < 0:
        raise ValueError(f"update counts from 0, got {update}.")
    return as_int(update, "update")


def as_int(value: int, argument: str) -> int:
    """Returns `value` as a Python int; a float or a boolean is a mistake, not a number."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{argument} must be an integer, got {value!r}.") from None
