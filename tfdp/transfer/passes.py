"""Sums over all examples, a block at a time, on any distribution strategy."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfdp import checks
from tfdp.clipping.xla import require_float32_products
from tfdp.transfer.feature_table import BLOCK, FeatureTable
from tfdp.transfer.linear_head import NORMALIZATIONS, normalized

#: Normalized features up to this many bytes stay in memory; more are read anew for each pass.
RESIDENT_BYTES = 4 << 30

#: Pieces in memory that one call works through; read from disk, they come one by one.
_PIECES_A_CALL = 16

#: (totals so far, features [B, D], labels [B], row values [B, V], constants) -> totals
Step = Callable[..., Any]


class Piece(NamedTuple):
    """Some consecutive examples as tensors.

    Attributes:
        start: Index of the first of them.
        features: Float32 `[B, D]`, normalized.
        labels: Int32 `[B]`.
    """

    start: int
    features: tf.Tensor
    labels: tf.Tensor


class Passes:
    """Runs passes over the same normalized features; each pass uses every example exactly once.

    Blocks go to the replicas of a strategy in turn, each replica adds up its own, and the sums
    of all replicas are added once at the end. Features that fit in memory become tensors once;
    others are read anew for every pass, one block ahead of the computation.

    Args:
        table: The features.
        normalize: "none", "unit" or "root"; see `normalized`.
        strategy: Where to compute; the current strategy when None.
        resident_bytes: Keep the features in memory up to this size.
    """

    def __init__(
        self,
        table: FeatureTable,
        normalize: str = "unit",
        strategy: tf.distribute.Strategy | None = None,
        resident_bytes: int = RESIDENT_BYTES,
    ) -> None:
        require_float32_products()
        self.table = table
        self.normalize = checks.one_of("normalize", normalize, NORMALIZATIONS)
        self.strategy = strategy or tf.distribute.get_strategy()
        self._kept: list[Piece] | None = None
        if 4 * len(table) * table.dim <= resident_bytes:
            self._kept = list(self._read())

    def sum(
        self,
        step: Step,
        shapes: Sequence[Sequence[int]],
        row_values: np.ndarray,
        *constants: np.ndarray,
    ) -> list[np.ndarray]:
        """Adds `step` up over all examples.

        Args:
            step: A `tf.function` that adds a block to the totals.
            shapes: Shape of each total; they start at zero and are float32.
            row_values: Float32 `[N, V]`, further numbers about each example, for the step.
            *constants: For every call of the step, as float32.

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

    def pieces(self) -> Iterator[Piece]:
        """Yields all examples once, in order."""
        return iter(self._kept) if self._kept is not None else _ahead(self._read())

    def _read(self) -> Iterator[Piece]:
        for block in self.table.blocks(BLOCK):
            features = normalized(block.features, self.normalize)
            yield Piece(block.start, tf.constant(features), tf.constant(block.labels))

    def _values(self, make: Callable[[int], Any]) -> Any:
        """Returns what `make` gives for each replica."""
        if self.strategy.num_replicas_in_sync == 1:
            return make(0)
        return self.strategy.experimental_distribute_values_from_function(
            lambda context: make(context.replica_id_in_sync_group)
        )


def shared_passes(
    table: FeatureTable, normalize: str, strategy: tf.distribute.Strategy | None = None
) -> Passes:
    """Returns `Passes` that are made once for a table: many fits then normalize it only once."""
    strategy = strategy or tf.distribute.get_strategy()
    return table.kept(
        ("passes", normalize), lambda: Passes(table, normalize, strategy), key=strategy
    )


def _inputs(
    shares: Sequence[Sequence[Piece]], row_values: np.ndarray, replica: int
) -> tuple[tuple[tf.Tensor, tf.Tensor, tf.Tensor], ...]:
    """Returns a replica's pieces, each with the values of its examples."""
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
    """Runs the step over several pieces in one call: a call costs as much as a small product."""

    @tf.function(reduce_retracing=True)
    def run(totals, pieces, constants):  # type: ignore[no-untyped-def]
        for features, labels, values in pieces:
            totals = step(totals, features, labels, values, constants)
        return totals

    return run


def _shares(pieces: Iterator[Piece], replicas: int, at_once: int) -> Iterator[list[list[Piece]]]:
    """Yields up to `at_once` pieces for each replica, equally many: the last may be empty."""
    while group := list(itertools.islice(pieces, replicas * at_once)):
        first = group[0]
        empty = Piece(first.start, first.features[:0], first.labels[:0])
        group += [empty] * (-len(group) % replicas)
        yield [group[replica::replicas] for replica in range(replicas)]


def _ahead(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Yields the same pieces, each read while the one before it is in use."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, pieces, None)
        while (piece := coming.result()) is not None:
            coming = reader.submit(next, pieces, None)
            yield piece
