"""Sums over all rows, a block at a time, on any distribution strategy."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfdp.transfer.rows import BLOCK, Block, Rows

#: Features up to this many bytes stay in memory between passes; more are read anew.
RESIDENT_BYTES = 4 << 30

#: (totals so far, features [B, D], labels [B], row values [B, V], constants) -> totals
Step = Callable[..., Any]


class _Piece(NamedTuple):
    """A block as tensors, and where it starts."""

    start: int
    features: tf.Tensor
    labels: tf.Tensor


class Passes:
    """Runs passes over the same rows; every row enters each pass exactly once.

    Blocks go to the replicas of a strategy in turn, each replica adds up its own, and the sums
    of all replicas are added once at the end. Features that fit in memory become tensors once,
    others are read anew for every pass, one block ahead of the computation.

    Args:
        rows: the features.
        strategy: where to compute; the current strategy when None.
        block: rows a replica handles at a time.
    """

    def __init__(
        self,
        rows: Rows,
        strategy: tf.distribute.Strategy | None = None,
        block: int = BLOCK,
    ) -> None:
        self.rows = rows
        self._strategy = strategy or tf.distribute.get_strategy()
        self._block = block
        self._kept: list[_Piece] | None = None
        if rows.bytes <= RESIDENT_BYTES:
            self._kept = [_as_piece(block) for block in rows.blocks(self._block)]

    def sum(
        self,
        step: Step,
        shapes: Sequence[Sequence[int]],
        row_values: np.ndarray,
        *constants: np.ndarray,
    ) -> list[np.ndarray]:
        """Adds `step` up over all rows.

        Args:
            step: a `tf.function` that adds a block to the totals.
            shapes: shape of each total; they start at zero and are float32.
            row_values: float32 `[N, V]`, further numbers about each row, for the step.
            *constants: for every call of the step, as float32.

        Returns:
            The totals, float32.
        """
        fixed = tuple(tf.convert_to_tensor(value, tf.float32) for value in constants)
        zeros = tuple(tf.zeros(tuple(shape)) for shape in shapes)
        totals = self._values(lambda _: zeros)
        for group in _grouped(self._pieces(), self._strategy.num_replicas_in_sync):
            inputs = self._values(lambda replica, group=group: _inputs(group[replica], row_values))
            totals = self._strategy.run(step, args=(totals, *inputs, fixed))
        return [self._strategy.reduce("SUM", total, axis=None).numpy() for total in totals]

    def _pieces(self) -> Iterator[_Piece]:
        if self._kept is not None:
            return iter(self._kept)
        return map(_as_piece, _ahead(self.rows.blocks(self._block)))

    def _values(self, make: Callable[[int], Any]) -> Any:
        """What `make` gives for each replica."""
        if self._strategy.num_replicas_in_sync == 1:
            return make(0)
        return self._strategy.experimental_distribute_values_from_function(
            lambda context: make(context.replica_id_in_sync_group)
        )


def _as_piece(block: Block) -> _Piece:
    return _Piece(block.start, tf.constant(block.features), tf.constant(block.labels))


def _inputs(piece: _Piece, row_values: np.ndarray) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    stop = piece.start + len(piece.labels)
    return piece.features, piece.labels, tf.constant(row_values[piece.start : stop])


def _grouped(pieces: Iterator[_Piece], size: int) -> Iterator[list[_Piece]]:
    """One piece for each replica; the last group is filled up with pieces of no rows."""
    while group := list(itertools.islice(pieces, size)):
        first = group[0]
        empty = _Piece(first.start, first.features[:0], first.labels[:0])
        yield group + [empty] * (size - len(group))


def _ahead(blocks: Iterator[Block]) -> Iterator[Block]:
    """The same blocks, each read while the one before it is in use."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = reader.submit(next, blocks, None)
            yield block
