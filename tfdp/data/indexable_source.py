"""Examples of anything with `__len__` and `__getitem__`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.data.example_source import ExampleSource, Fetched
from tfdp.data.example_spec import as_declared, as_leaf, as_parts, by_part, declared_spec, written

_TRIED = 100  # examples that are looked at before anything is spent


class IndexableSource(ExampleSource):
    """Examples of a random-access sequence, such as a `tfds.data_source`.

    ```python
    digits = tfds.data_source("mnist", split="train")
    source = IndexableSource(digits, lambda item: (item["image"], item["label"]))

    spec = (tf.TensorSpec([3], tf.float32), tf.TensorSpec([], tf.int64))
    source = IndexableSource(my_items, element_spec=spec)
    ```

    Shapes and types are public: they are declared, and no example can change how the others are
    read. An example that raises while it is read, or is not as declared, is invalid: zeros,
    counted in `bad_records`.
    """

    def __init__(
        self,
        sequence: Any,
        map_fn: Callable[[Any], Any] | None = None,
        element_spec: Any = None,
    ):
        """Creates the source.

        Args:
            sequence: Object with `__len__` and `__getitem__(int)`; `__getitems__(list)` is used
                where it exists.
            map_fn: Turns an item into an example: `x`, `(x, y)` or `(x, y, sample_weight)`, nested
                structures of arrays. By default, the item is the example.
            element_spec: What one example looks like, after `map_fn`: the same structure, with a
                `tf.TensorSpec` for every array. Not needed where `sequence` has an `element_spec`
                of its items or is a `tfds.data_source`; `map_fn` is then tried on zeros.

        Raises:
            TypeError: `sequence` has no random access, or `element_spec` is none.
            ValueError: It is empty, nobody has declared what an example looks like, or none of the
                first 100 is as declared.
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
        spec = declared_spec(sequence, map_fn, element_spec)
        if spec is None:
            raise ValueError(
                f"x is a {type(sequence).__name__} that does not declare what its examples look "
                "like. If shapes and types were taken from one of them, that private example could "
                "change how all others are read, so you declare them. "
                f"{self._looks()} Check it, and pass it as tfdp.data.IndexableSource(items, "
                "element_spec=...), or give the object an attribute element_spec."
            )
        self._template = spec
        self._specs: list[tf.TensorSpec] = keras.tree.flatten(spec)
        self._check_any_is_as_declared()

    def __len__(self) -> int:
        return len(self._sequence)

    def fetch(self, indices: tf.Tensor, step: tf.Tensor) -> Fetched:
        """Returns the examples at `indices`; see `ExampleSource.fetch`."""
        indices = tf.convert_to_tensor(indices, tf.int64)
        dtypes = [*(spec.dtype for spec in self._specs), tf.bool]
        *rows, valid = tf.numpy_function(self._rows, [indices], dtypes)
        for row, spec in zip(rows, self._specs, strict=True):
            row.set_shape([indices.shape[0], *spec.shape])
        valid.set_shape(indices.shape)
        return *as_parts(self._template, rows), valid

    def _check_any_is_as_declared(self) -> None:
        """Raises if no example is as declared; what one example is like decides nothing."""
        tried = min(_TRIED, len(self))
        for index in range(tried):
            if not isinstance(self._example(self._item(index)), str):
                return
        raise ValueError(f"None of the first {tried} examples is as declared. {self._looks()}")

    def _looks(self) -> str:
        """What the first example that can be read looks like, for a person to declare."""
        error: Exception | None = None
        for index in range(min(_TRIED, len(self))):
            try:
                return (
                    f"Example {index} looks like\n\n    element_spec = "
                    f"{written(self._map_fn(self._sequence[index]))}\n\n"
                )
            except Exception as raised:  # any error of the user's code
                error = raised
        return f"None of the first examples can be read: {type(error).__name__}: {error}."

    def _rows(self, indices: np.ndarray) -> list[np.ndarray]:
        """Reads examples into one array for each leaf; the last array is the validity."""
        leaves = [
            np.full((len(indices), *spec.shape), b"", object)
            if spec.dtype == tf.string
            else np.zeros((len(indices), *spec.shape), spec.dtype.as_numpy_dtype)
            for spec in self._specs
        ]
        valid = np.zeros(len(indices), bool)
        for row, item in enumerate(self._items(indices.tolist())):
            values = self._example(item)
            if isinstance(values, str):
                self._bad.add(values, [indices[row]])
                continue
            for leaf, value in zip(leaves, values, strict=True):
                leaf[row] = value[()]
            valid[row] = True
        return [*leaves, valid]

    def _items(self, indices: list[int]) -> list[Any]:
        """Items at `indices`, an exception in the place of each that raises."""
        if hasattr(self._sequence, "__getitems__"):
            try:
                items = list(self._sequence.__getitems__(indices))
                if len(items) == len(indices):  # else some would come in the place of others
                    return items
            except Exception:  # one bad item must not take the others with it
                pass
        return [self._item(index) for index in indices]

    def _item(self, index: int) -> Any:
        try:
            return self._sequence[index]
        except Exception as error:
            return error

    def _example(self, item: Any) -> list[np.ndarray] | str:
        """The arrays of one example as declared, or the reason that `bad_records` shows."""
        if isinstance(item, Exception):
            return "unreadable_record"
        try:
            parts = by_part(self._map_fn(item))
            arrays = keras.tree.map_structure_up_to(self._template, as_leaf, parts)
            values = keras.tree.flatten(arrays)
            if any(v.shape != s.shape for v, s in zip(values, self._specs, strict=True)):
                return "wrong_shape"
            cast = [as_declared(v, s) for v, s in zip(values, self._specs, strict=True)]
        except Exception:
            return "unreadable_record"
        kept = [value for value in cast if value is not None]
        return kept if len(kept) == len(cast) else "wrong_type"
