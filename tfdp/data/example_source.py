"""What every source of examples offers, and its batches for `evaluate` and `predict`."""

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
    """Examples with random access: what Poisson sampling inside `fit` needs.

    One example is the unit of privacy. An example that cannot be read does not stop a private run
    with an error (that would reveal it, after privacy was spent): it comes back as zeros, marked
    invalid, contributes nothing, and is counted.
    """

    def __init__(self) -> None:
        self._bad = Tally()

    @abc.abstractmethod
    def __len__(self) -> int:
        """Number of examples."""

    @abc.abstractmethod
    def fetch(self, indices: tf.Tensor, step: tf.Tensor) -> Fetched:
        """Returns the examples at `indices`, as a pure function of the arguments.

        May be called eagerly and inside `tf.data.Dataset.map`.

        Args:
            indices: int64 `[M]`; repeated indices are allowed.
            step: int64 scalar, the number of the step; it seeds random augmentation.

        Returns:
            `(x, y, sample_weight, valid)`: inputs and targets as nested structures of tensors
            `[M, ...]` with static shapes (`y` may be None), sample weights float32 `[M]` (or
            `[M, T]`, where the loss has a value for every token) or None, and bool `[M]`, False
            for the examples that could not be read, whose rows are zero.
        """

    @property
    def bad_records(self) -> dict[str, int]:
        """Reason -> number of distinct examples that could not be read so far.

        The counts are exact facts about private examples: they are for whoever holds the data.
        Each of several workers counts the examples that it reads itself.
        """
        return self._bad.counts()

    def counts_kept_in(self, path: str | os.PathLike) -> contextlib.AbstractContextManager[None]:
        """Makes the counts of examples outlast the process, while the block is open.

        ```python
        with source.counts_kept_in("runs/mine/unreadable.jsonl"):
            model.fit(source, callbacks=[saver])
        ```

        What earlier processes counted is added at the start, each example once, and what is counted
        in the block is in the file before a step can use it. The file says which examples these
        are, so it is for whoever holds the data.

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
    """Every readable example of a source once, in order, in batches as Keras takes them.

    Args:
        source: The examples, fetched as in step 0.
        batch_size: Examples in a batch; the last batch may hold fewer, and examples that cannot
            be read are skipped, as weights of zero would still count in Keras's means.

    Returns:
        A dataset of `(x,)`, `(x, y)` or `(x, y, sample_weight)`.

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
