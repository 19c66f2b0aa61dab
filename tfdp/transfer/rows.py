"""Feature rows with their labels, read in blocks and checked before any privacy is spent."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from tfdp import checks

_LOGGER = logging.getLogger(__name__)
#: Rows handled at a time: small enough to stay in a processor's cache between two products.
BLOCK = 4096
#: A row longer than this would overflow float32 when squared; it counts as not finite.
_LONGEST = 1e18


class Part(Protocol):
    """A piece of a table: an array, or a shard on disk that is read a slice at a time."""

    @property
    def shape(self) -> tuple[int, ...]:
        """`(rows, columns)`."""

    def __getitem__(self, rows: slice) -> np.ndarray:
        """The rows of a slice, `[B, D]`."""


class Block(NamedTuple):
    """Some consecutive rows.

    Attributes:
        start: index of the first of them.
        features: float16 or float32 `[B, D]`, with zeros for rows that are not finite.
        labels: int32 `[B]`.
    """

    start: int
    features: np.ndarray
    labels: np.ndarray


class Rows:
    """Features `[N, D]` and labels `[N]` in one or more parts, never copied whole.

    A row that holds NaN or infinity contributes nothing to anything: it is read as zeros,
    counted in `bad_rows`, and said once in the log. Stopping because of it would tell of one
    record. Labels are the caller's to get right: a wrong one is an error.

    Args:
        parts: the pieces of the table, each `[n, D]` of floats.
        labels: one integer array a part, `[n]`.
        num_classes: K, a public number.

    Raises:
        TypeError: features are not floats, or labels are not integers.
        ValueError: shapes disagree, there is no row or no finite one, or a label lies outside
            0..K-1.
    """

    def __init__(
        self, parts: Sequence[Part], labels: Sequence[np.ndarray], num_classes: int
    ) -> None:
        self.num_classes = checks.class_count(num_classes)
        kept = [(part, y) for part, y in zip(parts, labels, strict=True) if part.shape[0]]
        if not kept:
            raise ValueError("features have no rows.")
        self._parts = [part for part, _ in kept]
        self._labels = [_checked_labels(part, y, num_classes) for part, y in kept]
        self.dim = _common_width(self._parts)
        self._starts = np.cumsum([0, *(part.shape[0] for part in self._parts)])
        self.norms, self._bad = self._measure()
        #: How many rows more or less than stated are no mistake; see `held_out.split_rows`.
        self.stray = 0.0
        #: Normalised copies, by normalisation; kept by `passes_over` and gone with the rows.
        self.passes: dict[str, Any] = {}
        #: The same as one array each, for training on sampled rows.
        self.tables: dict[str, np.ndarray] = {}
        self.bad_rows = int(self._bad.sum())
        if self.bad_rows == len(self):
            raise ValueError("features hold no finite row: NaN or infinity is in every one.")
        if self.bad_rows:
            _LOGGER.warning(
                "%d of %d feature rows are not finite; they are left out.",
                self.bad_rows, len(self),
            )  # fmt: skip

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def labels(self) -> np.ndarray:
        """All labels, int32 `[N]`; -1 for rows that are not finite."""
        labels = np.concatenate(self._labels)
        return np.where(self._bad, -1, labels).astype(np.int32)

    def blocks(self, size: int = BLOCK) -> Iterator[Block]:
        """All rows once, in order, at most `size` at a time."""
        for part, labels, offset in zip(self._parts, self._labels, self._starts, strict=False):
            for begin in range(0, part.shape[0], size):
                features = _as_float(part[begin : begin + size])
                start = int(offset) + begin
                bad = self._bad[start : start + len(features)]
                if bad.any():
                    features = np.where(bad[:, None], features.dtype.type(0), features)
                yield Block(start, features, labels[begin : begin + size])

    def contents(self) -> Iterator[np.ndarray]:
        """The features of every row by itself, float32 `[D]`, in order."""
        for block in self.blocks():
            yield from np.ascontiguousarray(block.features, np.float32)

    def subset(self, chosen: np.ndarray) -> Rows:
        """The rows where `chosen` `[N]` is true, in order; features stay where they are."""
        picks = [
            np.flatnonzero(chosen[start : start + part.shape[0]])
            for part, start in zip(self._parts, self._starts, strict=False)
        ]
        parts = [_Picked(part, pick) for part, pick in zip(self._parts, picks, strict=True)]
        labels = [y[pick] for y, pick in zip(self._labels, picks, strict=True)]
        return Rows(parts, labels, self.num_classes)

    def _measure(self) -> tuple[np.ndarray, np.ndarray]:
        """Euclidean norm of every row, float32 `[N]`, and which rows are not finite."""
        norms = np.empty(len(self), np.float32)
        self._bad = np.zeros(len(self), bool)
        for block in self.blocks():
            rows = block.features.astype(np.float32, copy=False)
            with np.errstate(over="ignore", invalid="ignore"):
                norms[block.start : block.start + len(rows)] = np.sqrt(
                    np.einsum("nd,nd->n", rows, rows)
                )
        bad = ~(norms <= _LONGEST)
        norms[bad] = 0
        return norms, bad


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


def as_rows(features: object, labels: object, num_classes: int) -> Rows:
    """Rows of an array-like `[N, D]` with labels `[N]` (or one-hot labels `[N, K]`).

    Memory maps are read as they are needed. float64 becomes float32, a block at a time.

    Raises:
        TypeError: these are no arrays.
        ValueError: `Rows` are of other classes, or came with labels besides their own.
    """
    if isinstance(features, Rows):
        return _own_rows(features, labels, num_classes)
    table = np.asanyarray(features)
    if table.ndim == 0:
        raise TypeError(
            f"features must be an array of shape [N, D] or Rows, got a {type(features).__name__}."
        )
    if table.ndim != 2:
        raise ValueError(f"features must have shape [N, D], got {table.shape}.")
    if labels is None:
        raise TypeError("labels are missing: features in an array need as many labels.")
    y = np.asarray(labels)
    if y.shape == (len(table), num_classes) and num_classes > 1:
        if not np.array_equal(np.sort(y, axis=1)[:, -2:], np.tile([0, 1], (len(y), 1))):
            raise ValueError("labels of shape [N, K] must be one-hot: one 1 a row, else 0.")
        y = y.argmax(axis=1)
    elif y.shape == (len(table), 1):
        y = y[:, 0]
    return Rows([table], [y], num_classes)


def _own_rows(rows: Rows, labels: object, num_classes: int) -> Rows:
    """Rows that know their labels and classes."""
    if labels is not None:
        raise ValueError("labels were given with Rows, which have their own: leave them out.")
    if rows.num_classes != num_classes:
        raise ValueError(
            f"the rows have {rows.num_classes} classes and this head has num_classes="
            f"{num_classes}: make it for {rows.num_classes}."
        )
    return rows


def _as_float(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values)
    if values.dtype in (np.float16, np.float32):
        return values
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


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
