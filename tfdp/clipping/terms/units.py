"""Examples that are clipped together: all records of one person, for instance."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from tfdp.clipping.terms.base import ExplicitTerm, Term
from tfdp.clipping.terms.lookup import LookupTerm
from tfdp.clipping.terms.matmul import GroupedMatMulTerm, MatMulTerm
from tfdp.clipping.terms.merge import SumTerm


def of_units(term: Term, size: int) -> Term:
    """Returns the sums of the gradients of every ``size`` consecutive examples, as one term.

    A sum over examples is a sum over positions: a unit is an example of ``size`` times as many of
    them, and its gradient keeps the factored form.

    Args:
      term: Per-example gradients ``[units * size, *shape]``.
      size: Examples in a unit.
    """
    if size == 1:
        return term
    if isinstance(term, MatMulTerm):
        return dataclasses.replace(
            term,
            inputs=_end_to_end(term.inputs, size),
            output_gradients=_end_to_end(term.output_gradients, size),
        )
    if isinstance(term, LookupTerm):
        return dataclasses.replace(
            term,
            ids=_end_to_end(term.ids, size),
            output_gradients=_end_to_end(term.output_gradients, size),
        )
    if isinstance(term, GroupedMatMulTerm):
        return dataclasses.replace(
            term,
            inputs=_end_to_end_by_group(term.inputs, size),
            output_gradients=_end_to_end_by_group(term.output_gradients, size),
        )
    if isinstance(term, SumTerm):
        return SumTerm(tuple(of_units(part, size) for part in term.parts))
    return ExplicitTerm(tf.reduce_sum(_split(term.per_example(), size), axis=1))


def _split(values: tf.Tensor, size: int) -> tf.Tensor:
    """``[units * size, ...] -> [units, size, ...]``."""
    return tf.reshape(values, [-1, size, *values.shape[1:]])


def _end_to_end(values: tf.Tensor, size: int) -> tf.Tensor:
    """``[units * size, T, ...] -> [units, size * T, ...]``."""
    return tf.reshape(values, [-1, size * values.shape[1], *values.shape[2:]])


def _end_to_end_by_group(values: tf.Tensor, size: int) -> tf.Tensor:
    """``[units * size, G, T, n] -> [units, G, size * T, n]``."""
    _, groups, positions, numbers = values.shape
    side_by_side = tf.transpose(_split(values, size), [0, 2, 1, 3, 4])
    return tf.reshape(side_by_side, [-1, groups, size * positions, numbers])
