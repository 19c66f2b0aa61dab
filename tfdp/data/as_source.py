"""What people pass to `fit`, as a source of examples."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.data.array_source import ArraySource
from tfdp.data.example_source import ExampleSource
from tfdp.data.indexable_source import IndexableSource

_WHY = (
    "Poisson sampling draws any example in any step, so it needs the number of examples and "
    "random access to each."
)
_INSTEAD = (
    "Pass arrays, a dict of arrays, an object with __len__ and __getitem__ such as "
    "tfds.data_source(...), or a tfdp.data.ExampleSource."
)


def as_source(x: Any, y: Any = None, sample_weight: Any = None) -> ExampleSource:
    """Turns the arguments of `fit` into a source of examples.

    Args:
        x: Arrays, a nested structure of arrays, an indexable sequence of examples that declares
            what they look like (see `IndexableSource`), or an `ExampleSource`.
        y: Targets; only with arrays.
        sample_weight: Weights `[N]` or `[N, T]`; only with arrays.

    Raises:
        TypeError: If `x` offers no random access to single examples: datasets that stream,
            generators, iterators, and batched loaders.
        ValueError: If lengths differ, nobody declared what an example looks like, or `y` or
            `sample_weight` comes with data that already hold them.
    """
    if isinstance(x, tf.data.Dataset):
        raise TypeError(_dataset_message(x))
    if isinstance(x, keras.utils.PyDataset) or _is_torch_loader(x):
        raise TypeError(
            f"x is a {type(x).__name__}, whose items are batches of its own. {_WHY} {_INSTEAD}"
        )
    if isinstance(x, Iterator):
        raise TypeError(f"x is a generator or iterator of unknown size. {_WHY} {_INSTEAD}")
    if isinstance(x, ExampleSource) or _is_indexable(x):
        _reject_beside_examples("y", y)
        _reject_beside_examples("sample_weight", sample_weight)
        return x if isinstance(x, ExampleSource) else IndexableSource(x)
    return ArraySource(x, y, sample_weight)


def _dataset_message(dataset: tf.data.Dataset) -> str:
    size = int(dataset.cardinality())
    known = "streams" if size < 0 else f"streams its {size} elements"
    return (
        f"x is a tf.data.Dataset, which {known} in an order of its own. {_WHY} {_INSTEAD} A finite "
        "dataset of single examples that fits in memory becomes one with "
        "tfdp.data.ArraySource.from_dataset(dataset)."
    )


def _is_torch_loader(x: Any) -> bool:
    return any(
        cls.__name__ == "DataLoader" and cls.__module__.startswith("torch.")
        for cls in type(x).__mro__
    )


def _is_indexable(x: Any) -> bool:
    if isinstance(x, list | tuple | dict | str | bytes | np.ndarray | tf.Tensor | tf.Variable):
        return False
    if hasattr(x, "__array__"):
        return False
    return hasattr(x, "__len__") and hasattr(x, "__getitem__")


def _reject_beside_examples(argument: str, value: Any) -> None:
    if value is not None:
        raise ValueError(
            f"{argument} must be None when x is a source of examples: each example holds its own."
        )
