"""What every source of records offers."""

import abc
import threading
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

Fetched = tuple[Any, Any, "tf.Tensor | None", "tf.Tensor"]


class RecordSource(abc.ABC):
    """Records with random access: what Poisson sampling inside `fit` needs.

    One record is the unit of privacy. A record that cannot be read is not an error that stops a
    private run (that would reveal it, after privacy was spent): it comes back as zeros, marked
    invalid, contributes nothing, and is counted.
    """

    def __init__(self) -> None:
        self._bad = Tally()

    @abc.abstractmethod
    def __len__(self) -> int:
        """Number of records."""

    @abc.abstractmethod
    def fetch(self, indices: tf.Tensor, update: tf.Tensor) -> Fetched:
        """Returns the records at `indices`, as a pure function of the arguments.

        May be called eagerly and inside `tf.data.Dataset.map`.

        Args:
          indices: int64 `[M]`; repeated indices are allowed.
          update: int64 scalar, the number of the update; it seeds random augmentation.

        Returns:
          `(x, y, sample_weight, valid)`: inputs and targets as nested structures of tensors
          `[M, ...]` with static shapes (`y` may be None), sample weights float32 `[M]` (or
          `[M, T]`, where the loss has a value for every token) or None, and bool `[M]`, False
          for the records that could not be read, whose rows are zero.
        """

    @property
    def bad_records(self) -> dict[str, int]:
        """Reason -> number of distinct records that could not be read so far.

        The counts are exact facts about private records: for whoever holds the data.
        """
        return self._bad.counts()


class Tally:
    """Counts each record once for each reason, from any thread."""

    def __init__(self) -> None:
        self._records: dict[str, set[int]] = {}
        self._lock = threading.Lock()

    def add(self, reason: str, records: Iterable[int]) -> None:
        """Notes that `records` met with `reason`."""
        with self._lock:
            self._records.setdefault(reason, set()).update(map(int, records))

    def counts(self) -> dict[str, int]:
        """Returns the number of distinct records of each reason."""
        with self._lock:
            return {reason: len(records) for reason, records in sorted(self._records.items())}
