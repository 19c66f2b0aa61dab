"""Records of anything with `__len__` and `__getitem__`."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.data.leaves import as_leaf, as_parts, tensor_dtype
from tfdp.data.source import Fetched, RecordSource


class IndexableSource(RecordSource):
    """Records of a random-access sequence, such as a `tfds.data_source`.

    ```python
    digits = tfds.data_source("mnist", split="train")
    source = IndexableSource(digits, lambda record: (record["image"], record["label"]))
    ```

    A record that raises while it is read, or whose shape differs from that of the first
    readable one, is invalid: zeros, counted in `bad_records`.
    """

    def __init__(self, sequence: Any, map_fn: Callable[[Any], Any] | None = None):
        """Creates the source.

        Args:
          sequence: Object with `__len__` and `__getitem__(int)`; `__getitems__(list)` is used
            where it exists.
          map_fn: Turns an item into a record: `x`, `(x, y)` or `(x, y, sample_weight)`, nested
            structures of arrays. By default, the item is the record.

        Raises:
          TypeError: If `sequence` has no random access.
          ValueError: If it is empty, or none of the first 100 records can be read.
        """
        super().__init__()
        if not (hasattr(sequence, "__len__") and hasattr(sequence, "__getitem__")):
            raise TypeError(
                "sequence must have __len__ and __getitem__, got an object of type "
                f"{type(sequence).__name__}."
            )
        if len(sequence) == 0:
            raise ValueError("sequence is empty.")
        self._sequence = sequence
        self._map_fn = map_fn or (lambda item: item)
        self._template = self._first_readable()
        self._shapes = [leaf.shape for leaf in keras.tree.flatten(self._template)]
        self._dtypes = [tensor_dtype(leaf) for leaf in keras.tree.flatten(self._template)]

    def __len__(self) -> int:
        return len(self._sequence)

    def fetch(self, indices: tf.Tensor, update: tf.Tensor) -> Fetched:
        """Returns the records at `indices`; see `RecordSource.fetch`."""
        indices = tf.convert_to_tensor(indices, tf.int64)
        *rows, valid = tf.numpy_function(self._rows, [indices], [*self._dtypes, tf.bool])
        for row, shape in zip(rows, self._shapes, strict=True):
            row.set_shape([indices.shape[0], *shape])
        valid.set_shape(indices.shape)
        return *as_parts(self._template, rows), valid

    def _first_readable(self) -> dict[str, Any]:
        """The first record that can be read: it fixes structure, shapes and types."""
        last_error: Exception | None = None
        for index in range(min(100, len(self))):
            try:
                return _as_record(self._map_fn(self._sequence[index]))
            except Exception as error:  # any error of the user's code
                last_error = error
        raise ValueError(
            f"None of the first {min(100, len(self))} records could be read; the last one "
            f"failed with {type(last_error).__name__}: {last_error}"
        ) from last_error

    def _rows(self, indices: np.ndarray) -> list[np.ndarray]:
        """Reads records into one array for each leaf; the last array is the validity."""
        leaves = [
            np.full((len(indices), *shape), b"", object)
            if dtype == tf.string
            else np.zeros((len(indices), *shape), dtype.as_numpy_dtype)
            for shape, dtype in zip(self._shapes, self._dtypes, strict=True)
        ]
        valid = np.zeros(len(indices), bool)
        for row, item in enumerate(self._items(indices.tolist())):
            reason = self._fill(leaves, row, item)
            if reason:
                self._bad.add(reason, [indices[row]])
            valid[row] = not reason
        return [*leaves, valid]

    def _items(self, indices: list[int]) -> list[Any]:
        """Items at `indices`, an exception in the place of each that raises."""
        if hasattr(self._sequence, "__getitems__"):
            try:
                return list(self._sequence.__getitems__(indices))
            except Exception:  # one bad item must not take the others with it
                pass
        return [self._item(index) for index in indices]

    def _item(self, index: int) -> Any:
        try:
            return self._sequence[index]
        except Exception as error:
            return error

    def _fill(self, leaves: list[np.ndarray], row: int, item: Any) -> str | None:
        """Writes one record, or returns why it cannot be."""
        if isinstance(item, Exception):
            return "unreadable_record"
        try:
            record = _as_record(self._map_fn(item))
            keras.tree.assert_same_structure(self._template, record)
        except Exception:
            return "unreadable_record"
        values = keras.tree.flatten(record)
        if [value.shape for value in values] != self._shapes:
            return "wrong_shape"
        for leaf, value in zip(leaves, values, strict=True):
            leaf[row] = value[()]
        return None


def _as_record(item: Any) -> dict[str, Any]:
    """Names the parts of a record and makes arrays of them."""
    parts = item if isinstance(item, tuple) else (item,)
    if not 1 <= len(parts) <= 3:
        raise TypeError(
            f"A record is x, (x, y) or (x, y, sample_weight), got a tuple of {len(parts)}."
        )
    named = dict(zip(("x", "y", "sample_weight"), parts, strict=False))
    return {
        name: keras.tree.map_structure(as_leaf, part)
        for name, part in named.items()
        if part is not None
    }
