"""Examples held in arrays."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.data.example_source import ExampleSource, Fetched
from tfdp.data.example_spec import as_leaf, as_parts, tensor_dtype

_NAMED = 5  # arrays that a message names


class ArraySource(ExampleSource):
    """Examples along the first axis of arrays, or of nested dicts, tuples and lists of arrays.

    Anything that NumPy can view as an array works: NumPy arrays and memory maps (read as they
    are needed, never copied whole), tensors, data frames' columns, lists of numbers or strings.
    Floating-point values get Keras's default float type, as in plain Keras.
    """

    def __init__(self, x: Any, y: Any = None, sample_weight: Any = None):
        """Creates the source.

        Args:
            x: Inputs, `[N, ...]`.
            y: Targets, `[N, ...]`, or None.
            sample_weight: Weights, `[N]`, or by token `[N, T]`, or None.

        Raises:
            ValueError: If lengths differ, or there is nothing to train on.
            TypeError: If something is not an array.
        """
        super().__init__()
        named = {"x": x, "y": y, "sample_weight": sample_weight}
        self._data = {
            name: _as_arrays(name, value) for name, value in named.items() if value is not None
        }
        self._length = _common_length(self._data)
        self._leaves: list[np.ndarray] = keras.tree.flatten(self._data)
        self._dtypes = [tensor_dtype(leaf) for leaf in self._leaves]
        weight = self._data.get("sample_weight")
        if weight is not None and not isinstance(weight, np.ndarray):
            raise ValueError(
                "sample_weight must be one array with a number for each example or each of its "
                f"tokens, got {keras.tree.map_structure(np.shape, weight)}."
            )

    @classmethod
    def from_dataset(cls, dataset: tf.data.Dataset) -> "ArraySource":
        """Reads a finite `tf.data.Dataset` of single (unbatched) examples into memory.

        Args:
            dataset: Elements `x`, `(x, y)` or `(x, y, sample_weight)`, one example each.

        Raises:
            ValueError: If the dataset is infinite or empty.
        """
        if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
            raise ValueError("dataset is infinite: use dataset.take(n) to bound it.")
        elements = list(dataset.as_numpy_iterator())
        if not elements:
            raise ValueError("dataset is empty.")
        stacked = keras.tree.map_structure(lambda *leaves: np.stack(leaves), *elements)
        return cls(*stacked) if isinstance(elements[0], tuple) else cls(stacked)

    def __len__(self) -> int:
        return self._length

    def fetch(self, indices: tf.Tensor, step: tf.Tensor) -> Fetched:
        """Returns the examples at `indices`; see `ExampleSource.fetch`."""
        indices = tf.convert_to_tensor(indices, tf.int64)
        rows = tf.numpy_function(self._rows, [indices], self._dtypes, stateful=False)
        rows = tf.nest.flatten(rows)  # eagerly, one array alone comes without a list
        for row, leaf in zip(rows, self._leaves, strict=True):
            row.set_shape([indices.shape[0], *leaf.shape[1:]])
        return *as_parts(self._data, rows), tf.ones_like(indices, tf.bool)

    def _rows(self, indices: np.ndarray) -> list[np.ndarray]:
        return [
            leaf[indices].astype(dtype.as_numpy_dtype, copy=False)
            for leaf, dtype in zip(self._leaves, self._dtypes, strict=True)
        ]


def _as_arrays(name: str, value: Any) -> Any:
    """Turns `value` into a nested structure of arrays with at least one axis."""
    if isinstance(value, dict):
        return {key: _as_arrays(f"{name}[{key!r}]", item) for key, item in value.items()}
    if isinstance(value, list | tuple) and not _is_column(value):
        return tuple(_as_arrays(f"{name}[{i}]", item) for i, item in enumerate(value))
    try:
        array = as_leaf(value)
    except ValueError as error:
        raise TypeError(f"{name} is not an array: {error}") from error
    if array.dtype.kind == "O" and not _holds_text(array):
        raise TypeError(
            f"{name} must be an array of numbers or strings, got objects of type "
            f"{type(value).__name__}. Rows of different lengths must be padded first; for Python "
            "objects with __len__ and __getitem__ use tfdp.data.IndexableSource."
        )
    try:
        tensor_dtype(array)
    except TypeError:  # dates and the like
        raise TypeError(
            f"{name} must be an array of numbers or strings, got dtype {array.dtype}."
        ) from None
    if array.ndim == 0:
        raise TypeError(f"{name} must have one row for each example, got the single value {value}.")
    return array


def _is_column(values: list | tuple) -> bool:
    """Whether a list is one column of values, rather than a structure of several arrays."""
    return bool(values) and all(
        isinstance(value, str | bytes | int | float | np.generic) for value in values
    )


def _holds_text(array: np.ndarray) -> bool:
    return all(isinstance(value, str | bytes) for value in array.ravel())


def _common_length(data: dict[str, Any]) -> int:
    """Returns the number of rows of every array, or says which differ."""
    lengths = {
        _joined((name, *path)): len(leaf)
        for name, part in data.items()
        for path, leaf in keras.tree.flatten_with_path(part)
    }
    if "x" not in data or not lengths:
        raise ValueError("x is None or holds no arrays: there is nothing to train on.")
    if len(set(lengths.values())) > 1:
        stated = [f"{name} has {length}" for name, length in lengths.items()]
        if len(stated) > _NAMED:  # a list of rows, most likely: Keras takes lists for many inputs
            rest = f"there are {len(stated) - _NAMED} more; np.asarray(list) makes one array of it"
            stated = [*stated[:_NAMED], rest]
        raise ValueError(f"All arrays must have the same number of rows, but {', '.join(stated)}.")
    length = next(iter(lengths.values()))
    if length == 0:
        raise ValueError("x has no rows.")
    return length


def _joined(path: tuple) -> str:
    """('x', 'image', 0) -> x['image'][0]."""
    return str(path[0]) + "".join(f"[{key!r}]" for key in path[1:])
