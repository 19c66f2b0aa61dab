"""Which examples belong to which user, where users are sampled instead of examples."""

from typing import Any

import numpy as np

from tfdp import checks


class UserExamples:
    """The examples of every user: a person, a household, or whatever a user id stands for.

    If a user has more examples than a step may use, the first ones in the order of the data are
    used in every step: which they are depends on nobody else's examples.
    """

    def __init__(self, user_ids: Any, examples_per_user: int):
        """Sorts the examples by user.

        Args:
          user_ids: The user of every example: integers or strings, `[N]`.
          examples_per_user: Most examples of a user that a step uses.

        Raises:
          ValueError: If the ids do not have exactly one axis, or there are none.
          TypeError: If they are neither integers nor strings.
        """
        self.examples_per_user = checks.positive_int("examples_per_user", examples_per_user)
        ids = np.asarray(user_ids)
        if ids.ndim != 1 or not len(ids):
            raise ValueError(f"user_ids must have one id per example, shape [N], got {ids.shape}.")
        if ids.dtype.kind not in "iuUS":
            raise TypeError(
                f"user_ids must be integers or strings, got {ids.dtype}: all examples whose id is "
                "missing would count as one user."
            )
        _, user, counts = np.unique(ids, return_inverse=True, return_counts=True)
        self._examples = np.argsort(user, kind="stable")
        self._counts = counts
        self._starts = np.cumsum(counts) - counts

    @property
    def num_users(self) -> int:
        """Number of different ids."""
        return len(self._counts)

    @property
    def num_examples(self) -> int:
        """Number of examples of all users, N."""
        return len(self._examples)

    @property
    def examples_skipped(self) -> int:
        """Number of examples beyond `examples_per_user`, which no step uses."""
        return int(np.maximum(self._counts - self.examples_per_user, 0).sum())

    def of(self, users: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Lays the examples of users side by side.

        Args:
          users: int64 `[U]`.
          mask: bool `[U]`, False on padding.

        Returns:
          Indices of examples int64 and mask bool, both `[U * examples_per_user]`: every user has
          as many places, padded with index 0 where the user has fewer examples.
        """
        places = np.arange(self.examples_per_user)
        held = (places < self._counts[users][:, np.newaxis]) & mask[:, np.newaxis]
        found = self._starts[users][:, np.newaxis] + np.where(held, places, 0)
        return np.where(held, self._examples[found], 0).reshape(-1), held.reshape(-1)
