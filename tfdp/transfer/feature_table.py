"""Features with their labels, read in blocks and checked before any privacy is spent."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from tfdp import checks

_LOGGER = logging.getLogger(__name__)
#: Examples handled at a time: small enough to stay in a processor's cache between two products.
BLOCK = 4096
#: A row longer than this would overflow float32 when squared; it counts as not finite.
_LONGEST = 1e18


class Part(Protocol):
    """A piece of a table: an array, or a shard on disk that is read a slice at a time."""

    @property
    def shape(self) -> tuple[int, ...]:
        """`(examples, columns)`."""

    def __getitem__(self, rows: slice) -> np.ndarray:
        """Returns the rows of a slice, `[B, D]`."""


class Block(NamedTuple):
    """Some consecutive examples.

    Attributes:
        start: Index of the first of them.
        features: Float16 or float32 `[B, D]`, with zeros for examples that are not finite.
        labels: Int32 `[B]`.
    """

    start: int
    features: np.ndarray
    labels: np.ndarray


class FeatureTable:
    """Features `[N, D]` and labels `[N]` in one or more parts, never copied whole.

    An example whose features hold NaN or infinity contributes nothing: it is read as zeros, counted
    in `bad_examples`, and mentioned once in the log. Stopping because of it would reveal something
    about one example. Labels must be right: a wrong one is an error.

    Args:
        parts: The pieces of the table, each `[n, D]` of floats.
        labels: One integer array per part, `[n]`.
        num_classes: K, a public number.
        stray: By how many examples the table may differ from its stated size; see `split`.

    Raises:
        TypeError: Features are not floats, or labels are not integers.
        ValueError: Shapes disagree, there is no example or no finite one, or a label lies outside
            0..K-1.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        labels: Sequence[np.ndarray],
        num_classes: int,
        stray: float = 0.0,
    ) -> None:
        self.num_classes = checks.class_count(num_classes)
        self.stray = stray
        kept = [(part, y) for part, y in zip(parts, labels, strict=True) if part.shape[0]]
        if not kept:
            raise ValueError("features have no rows.")
        self._parts = [part for part, _ in kept]
        self._labels = np.concatenate([_checked_labels(p, y, num_classes) for p, y in kept])
        self.dim = _common_width(self._parts)
        self._starts = np.cumsum([0, *(part.shape[0] for part in self._parts)])
        self._bad = np.concatenate([_not_finite(features) for features in self._features(BLOCK)])
        self._kept: dict[Hashable, tuple[Hashable, Any]] = {}
        self.bad_examples = int(self._bad.sum())
        if self.bad_examples == len(self):
            raise ValueError("features hold no finite row: every row has NaN or infinity.")
        if self.bad_examples:
            _LOGGER.warning(
                "%d of %d feature rows are not finite; they are skipped.",
                self.bad_examples, len(self),
            )  # fmt: skip

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def labels(self) -> np.ndarray:
        """All labels, int32 `[N]`; -1 for examples that are not finite."""
        return np.where(self._bad, -1, self._labels).astype(np.int32)

    def blocks(self, size: int = BLOCK) -> Iterator[Block]:
        """Yields all examples once, in order, at most `size` at a time."""
        start = 0
        for features in self._features(size):
            stop = start + len(features)
            bad = self._bad[start:stop]
            if bad.any():
                features = np.where(bad[:, None], features.dtype.type(0), features)
            yield Block(start, features, self._labels[start:stop])
            start = stop

    def contents(self) -> Iterator[np.ndarray]:
        """Yields the features of every example by itself, float32 `[D]`, in order."""
        for block in self.blocks():
            yield from np.ascontiguousarray(block.features, np.float32)

    def subset(self, chosen: np.ndarray, stray: float = 0.0) -> FeatureTable:
        """Returns the examples where `chosen` `[N]` is true; features stay where they are."""
        parts: list[Part] = []
        labels = []
        for part, start in zip(self._parts, self._starts, strict=False):
            picks = np.flatnonzero(chosen[start : start + part.shape[0]])
            parts.append(_Picked(part, picks))
            labels.append(self._labels[start + picks])
        return FeatureTable(parts, labels, self.num_classes, stray)

    def kept(self, name: Hashable, make: Callable[[], Any], key: Hashable = None) -> Any:
        """Returns what `make` gave the last time, if `key` is the same; makes it again if not.

        What many fits share, such as normalized features, is kept here and goes with the table.
        """
        if name not in self._kept or self._kept[name][0] != key:
            self._kept[name] = key, make()
        return self._kept[name][1]

    def _features(self, size: int) -> Iterator[np.ndarray]:
        """Yields features as they are stored, at most `size` rows of one part at a time."""
        for part in self._parts:
            for begin in range(0, part.shape[0], size):
                yield _as_float(part[begin : begin + size])


class _Picked:
    """Some rows of a part, by ascending index; reads the range that they lie in."""

    def __init__(self, part: Part, indices: np.ndarray) -> None:
        self._part, self._indices = part, indices
        self.shape = (len(indices), *part.shape[1:])

    def __getitem__(self, rows: slice) -> np.ndarray:
        indices = self._indices[rows]
        if not len(indices):
            return np.asarray(self._part[0:0])
        first = int(indices[0])
        return np.asarray(self._part[first : int(indices[-1]) + 1])[indices - first]


def as_table(features: object, labels: object, num_classes: int) -> FeatureTable:
    """Returns the table of an array `[N, D]` with labels `[N]` (or one-hot labels `[N, K]`).

    Memory maps are read as they are needed. Float64 becomes float32, a block at a time.

    Raises:
        TypeError: These are not arrays.
        ValueError: A `FeatureTable` has other classes, or came with labels besides its own.
    """
    if isinstance(features, FeatureTable):
        return _same_classes(features, labels, num_classes)
    table = np.asanyarray(features)
    if table.ndim == 0:
        raise TypeError(
            "features must be an array of shape [N, D] or a FeatureTable, got a "
            f"{type(features).__name__}."
        )
    if table.ndim != 2:
        raise ValueError(f"features must have shape [N, D], got {table.shape}.")
    if labels is None:
        raise TypeError("labels are missing: an array of features needs one label per row.")
    y = np.asarray(labels)
    if y.shape == (len(table), num_classes) and num_classes > 1:
        if not np.array_equal(np.sort(y, axis=1)[:, -2:], np.tile([0, 1], (len(y), 1))):
            raise ValueError("labels of shape [N, K] must be one-hot: one 1 per row, else 0.")
        y = y.argmax(axis=1)
    elif y.shape == (len(table), 1):
        y = y[:, 0]
    return FeatureTable([table], [y], num_classes)


def _same_classes(table: FeatureTable, labels: object, num_classes: int) -> FeatureTable:
    """Returns the table, which has its own labels and must have these classes."""
    if labels is not None:
        raise ValueError("labels were given with a FeatureTable, which has its own: omit them.")
    if table.num_classes != num_classes:
        raise ValueError(
            f"the features have {table.num_classes} classes, but this head has num_classes="
            f"{num_classes}: set num_classes={table.num_classes}."
        )
    return table


def _as_float(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values)
    if values.dtype in (np.float16, np.float32):
        return values
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def _not_finite(features: np.ndarray) -> np.ndarray:
    """Returns which rows are not finite, bool `[B]`."""
    rows = features.astype(np.float32, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    return ~(norms <= _LONGEST)


def _common_width(parts: Sequence[Part]) -> int:
    for number, part in enumerate(parts):
        if len(part.shape) != 2 or part.shape[1] < 1:
            raise ValueError(f"features must have shape [N, D], got {part.shape}.")
        if part.shape[1] != parts[0].shape[1]:
            raise ValueError(
                f"all features must have the same width: part 0 has {parts[0].shape[1]} columns, "
                f"part {number} has {part.shape[1]}. They come from different backbones."
            )
        kind = np.asarray(part[:1]).dtype.kind
        if kind not in "fiu":
            raise TypeError(f"features must be numbers, got dtype {part[:1].dtype}.")
    return parts[0].shape[1]


def _checked_labels(part: Part, labels: np.ndarray, num_classes: int) -> np.ndarray:
    labels = np.asarray(labels)
    if labels.shape != (part.shape[0],):
        raise ValueError(
            f"labels must have shape [{part.shape[0]}], one for each feature row, "
            f"got {labels.shape}."
        )
    if labels.dtype.kind not in "iu":
        raise TypeError(f"labels must be integers, got dtype {labels.dtype}.")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= num_classes:
        raise ValueError(
            f"labels must lie in 0..{num_classes - 1} (num_classes={num_classes}), "
            f"found {low if low < 0 else high}."
        )
    return labels.astype(np.int32, copy=False)
