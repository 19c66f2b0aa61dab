"""Which records belong to whom, where a person and not a record is sampled."""

from typing import Any

import numpy as np

from tfdp import checks


class UserExamples:
    """The records of every unit: of a person, a household, or whatever a group id stands for.

    Of a unit with more records than the bound the first ones, in the order of the data, are used
    in every step: which they are depends on nobody else's records.
    """

    def __init__(self, user_ids: Any, examples_per_user: int):
        """Sorts the records by unit.

        Args:
          user_ids: For every record whose it is: integers or strings, `[N]`.
          examples_per_user: Most records of a unit that a step uses.

        Raises:
          ValueError: If the ids are not of one axis, or there are none.
          TypeError: If they are neither integers nor strings.
        """
        self.examples_per_user = checks.positive_int("examples_per_user", examples_per_user)
        ids = np.asarray(user_ids)
        if ids.ndim != 1 or not len(ids):
            raise ValueError(f"user_ids must have one id a record, shape [N], got {ids.shape}.")
        if ids.dtype.kind not in "iuUS":
            raise TypeError(
                f"user_ids must be integers or strings, got {ids.dtype}: an id that is missing "
                "would make one person of all that miss it."
            )
        _, unit, counts = np.unique(ids, return_inverse=True, return_counts=True)
        self._records = np.argsort(unit, kind="stable")
        self._counts = counts
        self._starts = np.cumsum(counts) - counts

    @property
    def num_users(self) -> int:
        """Number of different ids."""
        return len(self._counts)

    @property
    def num_records(self) -> int:
        """Number of records of all units, N."""
        return len(self._records)

    @property
    def records_left_out(self) -> int:
        """Number of records beyond the bound, which no update uses."""
        return int(np.maximum(self._counts - self.examples_per_user, 0).sum())

    def rows(self, units: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Lays the records of units side by side.

        Args:
          units: int64 `[U]`.
          mask: bool `[U]`, False on padding.

        Returns:
          Record indices int64 and mask bool, both `[U * examples_per_user]`: every unit has
          as many places, padded with index 0 where it has fewer records.
        """
        places = np.arange(self.examples_per_user)
        held = (places < self._counts[units][:, np.newaxis]) & mask[:, np.newaxis]
        found = self._starts[units][:, np.newaxis] + np.where(held, places, 0)
        return np.where(held, self._records[found], 0).reshape(-1), held.reshape(-1)
