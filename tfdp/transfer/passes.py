"""Sums over all rows, a block at a time, on any distribution strategy."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfdp.clipping.xla import require_float32_products
from tfdp.transfer.normalise import check_normalisation, normalised
from tfdp.transfer.rows import BLOCK, Rows

#: Normalised features up to this many bytes stay in memory; more are read anew for each pass.
RESIDENT_BYTES = 4 << 30

#: Pieces in memory that one call works through; read from disk, they come one by one.
_PIECES_A_CALL = 16

#: (totals so far, features [B, D], labels [B], row values [B, V], constants) -> totals
Step = Callable[..., Any]


class Piece(NamedTuple):
    """Some consecutive rows as tensors.

    Attributes:
        start: index of the first of them.
        features: float32 `[B, D]`, normalised.
        labels: int32 `[B]`.
    """

    start: int
    features: tf.Tensor
    labels: tf.Tensor


class Passes:
    """Runs passes over the same normalised rows; every row enters each pass exactly once.

    Blocks go to the replicas of a strategy in turn, each replica adds up its own, and the sums
    of all replicas are added once at the end. Features that fit in memory become tensors once,
    others are read anew for every pass, one block ahead of the computation.

    Args:
        rows: the features.
        normalise: "none", "unit" or "root"; see `normalised`.
        strategy: where to compute; the current strategy when None.
        resident_bytes: keep the features in memory up to this size.
    """

    def __init__(
        self,
        rows: Rows,
        normalise: str = "unit",
        strategy: tf.distribute.Strategy | None = None,
        resident_bytes: int = RESIDENT_BYTES,
    ) -> None:
        require_float32_products()
        self.rows = rows
        self.normalise = check_normalisation(normalise)
        self.strategy = strategy or tf.distribute.get_strategy()
        self._kept: list[Piece] | None = None
        self._remembered: dict[Hashable, Any] = {}
        if 4 * len(rows) * rows.dim <= resident_bytes:
            self._kept = list(self._read())

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
        run = _over_pieces(step)
        replicas = self.strategy.num_replicas_in_sync
        at_once = 1 if self._kept is None else _PIECES_A_CALL
        for shares in _shares(self.pieces(), replicas, at_once):
            inputs = self._values(functools.partial(_inputs, shares, row_values))
            totals = self.strategy.run(run, args=(totals, inputs, fixed))
        return [self.strategy.reduce("SUM", total, axis=None).numpy() for total in totals]

    def remembered(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What `make` gave for the last key: a study asks for one exact sum for many methods.

        Exact sums are private. They are kept here, beside the rows, and nowhere else.
        """
        if key not in self._remembered:
            self._remembered = {key: make()}
        return self._remembered[key]

    def pieces(self) -> Iterator[Piece]:
        """All rows once, in order."""
        return iter(self._kept) if self._kept is not None else _ahead(self._read())

    def _read(self) -> Iterator[Piece]:
        for block in self.rows.blocks(BLOCK):
            features = normalised(block.features, self.normalise)
            yield Piece(block.start, tf.constant(features), tf.constant(block.labels))

    def _values(self, make: Callable[[int], Any]) -> Any:
        """What `make` gives for each replica."""
        if self.strategy.num_replicas_in_sync == 1:
            return make(0)
        return self.strategy.experimental_distribute_values_from_function(
            lambda context: make(context.replica_id_in_sync_group)
        )


def passes_over(
    rows: Rows, normalise: str, strategy: tf.distribute.Strategy | None = None
) -> Passes:
    """`Passes`, made once for the same rows, so that many fits read and normalise them once."""
    strategy = strategy or tf.distribute.get_strategy()
    made = rows.passes.get(normalise)
    if made is None or made.strategy is not strategy:
        made = rows.passes[normalise] = Passes(rows, normalise, strategy)
    return made


def _inputs(
    shares: Sequence[Sequence[Piece]], row_values: np.ndarray, replica: int
) -> tuple[tuple[tf.Tensor, tf.Tensor, tf.Tensor], ...]:
    """A replica's pieces, each with the values of its rows."""
    return tuple(
        (
            piece.features,
            piece.labels,
            tf.constant(row_values[piece.start : piece.start + len(piece.labels)]),
        )
        for piece in shares[replica]
    )


@functools.cache
def _over_pieces(step: Step) -> Callable[..., Any]:
    """The step over several pieces in one call: calls cost as much as small matrix products."""

    @tf.function(reduce_retracing=True)
    def run(totals, pieces, constants):  # type: ignore[no-untyped-def]
        for features, labels, values in pieces:
            totals = step(totals, features, labels, values, constants)
        return totals

    return run


def _shares(pieces: Iterator[Piece], replicas: int, at_once: int) -> Iterator[list[list[Piece]]]:
    """Up to `at_once` pieces for each replica, equally many: the last ones may have no rows."""
    while group := list(itertools.islice(pieces, replicas * at_once)):
        first = group[0]
        empty = Piece(first.start, first.features[:0], first.labels[:0])
        group += [empty] * (-len(group) % replicas)
        yield [group[replica::replicas] for replica in range(replicas)]


def _ahead(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """The same pieces, each read while the one before it is in use."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, pieces, None)
        while (piece := coming.result()) is not None:
            coming = reader.submit(next, pieces, None)
            yield piece
