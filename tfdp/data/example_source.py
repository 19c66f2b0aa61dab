"""What every source of records offers."""

import abc
import contextlib
import os
from typing import Any

import keras
import tensorflow as tf

from tfdp import checks
from tfdp.data.tally import Tally, kept_in

Fetched = tuple[Any, Any, "tf.Tensor | None", "tf.Tensor"]


class ExampleSource(abc.ABC):
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
        Of several workers each counts the records that it reads itself.
        """
        return self._bad.counts()

    def counts_kept_in(self, path: str | os.PathLike) -> contextlib.AbstractContextManager[None]:
        """Makes the counts of records outlast the process, for as long as the block is open.

        ```python
        with source.counts_kept_in("runs/mine/unreadable.jsonl"):
            model.fit(source, callbacks=[saver])
        ```

        What earlier processes met is counted from the start, each record once, and what is met in
        the block is in the file before a step can use it. The file says which records these
        are, so it is for whoever holds them.

        Args:
          path: The file, JSON by lines, of one run that one process makes at a time; it need not
            exist.

        Raises:
          ValueError: When the block is entered, if it is another file.
        """
        return kept_in(path, self._tallies())

    def _tallies(self) -> dict[str, Tally]:
        """What is counted, by name."""
        return {"bad_records": self._bad}


def batches(source: ExampleSource, batch_size: int) -> tf.data.Dataset:
    """Every readable record of a source once, in order, in batches as Keras takes them.

    Args:
      source: The records, fetched as in update 0.
      batch_size: Records in a batch; the last batch may hold fewer, and records that cannot be
        read are left out, as weights of zero would still count in Keras's means.

    Returns:
      A data set of `(x,)`, `(x, y)` or `(x, y, sample_weight)`.

    Raises:
      TypeError: If `batch_size` is not a whole number.
      ValueError: If it is below 1.
    """
    batch_size = checks.positive_int("batch_size", batch_size)
    count = len(source)

    def fetch(start: tf.Tensor) -> tuple[Any, ...]:
        indices = tf.range(start, tf.minimum(start + batch_size, count))
        x, y, sample_weight, valid = source.fetch(indices, tf.constant(0, tf.int64))
        parts: tuple[Any, ...] = (x, y, sample_weight)
        if sample_weight is None:
            parts = (x,) if y is None else (x, y)
        return keras.tree.map_structure(lambda rows: tf.boolean_mask(rows, valid), parts)

    starts = tf.data.Dataset.range(0, count, batch_size)
    return starts.map(fetch, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
