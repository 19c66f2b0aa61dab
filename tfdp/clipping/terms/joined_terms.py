"""Several uses of one weight, as one term."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfdp.clipping.terms.ghost_norm import raised_gram
from tfdp.clipping.terms.matmul_terms import LookupTerm, MatMulTerm
from tfdp.clipping.terms.term import ExplicitTerm, Term


def merge(terms: Sequence[Term]) -> Term:
    """Joins the uses of one weight into one term, cross terms included.

    The norm of a sum is not the sum of the norms: a weight used twice with gradients g and h has
    norm ``|g + h|``. Uses of one kind are laid end to end along the positions, which keeps the
    factored form.
    """
    kinds: dict[tuple, list[Term]] = {}
    for term in terms:
        kinds.setdefault(_kind(term), []).append(term)
    joined = [_join(same) for same in kinds.values()]
    return joined[0] if len(joined) == 1 else SumTerm(tuple(joined))


@dataclasses.dataclass(frozen=True)
class SumTerm(Term):
    """Uses of different kinds, such as a table that is both looked up and multiplied by."""

    parts: tuple[Term, ...]

    def squared_norm(self) -> tf.Tensor:
        # |sum g|^2 = sum |g|^2 + 2 sum_{g<h} g . h
        squares = [part.squared_norm() for part in self.parts]
        total = tf.add_n(squares)
        for a, b in itertools.combinations(self.parts, 2):
            total += 2 * _inner_product(a, b)
        scale = tf.square(tf.add_n([tf.sqrt(part) for part in squares]))
        return raised_gram(total, scale, len(self.parts))

    def weighted_sum(self, coefficients: tf.Tensor) -> tf.Tensor:
        return tf.add_n([part.weighted_sum(coefficients) for part in self.parts])

    def per_example(self) -> tf.Tensor:
        return tf.add_n([part.per_example() for part in self.parts])

    @property
    def forms_gradients(self) -> bool:
        return any(part.forms_gradients for part in self.parts)

    def norm_numbers(self) -> int:
        return sum(part.norm_numbers() for part in self.parts)

    def by_user(self, examples_per_user: int) -> SumTerm:
        return SumTerm(tuple(part.by_user(examples_per_user) for part in self.parts))

    def keep(self, examples: tf.Tensor) -> SumTerm:
        return SumTerm(tuple(part.keep(examples) for part in self.parts))


def _kind(term: Term) -> tuple:
    """What terms must share to be laid end to end."""
    if isinstance(term, MatMulTerm):
        return MatMulTerm, term.inputs.shape[2]
    if isinstance(term, LookupTerm):
        return (LookupTerm,)
    return (Term,)  # added up explicitly


def _join(terms: list[Any]) -> Term:
    first = terms[0]
    if len(terms) == 1:
        return first
    if isinstance(first, MatMulTerm):
        inputs = tf.concat([term.inputs for term in terms], axis=1)
        gradients = tf.concat([term.output_gradients for term in terms], axis=1)
        return MatMulTerm(inputs, gradients, first.shape)
    if isinstance(first, LookupTerm):
        ids = tf.concat([term.ids for term in terms], axis=1)
        gradients = tf.concat([term.output_gradients for term in terms], axis=1)
        return LookupTerm(ids, gradients, first.vocabulary)
    gradients = tf.add_n([term.per_example() for term in terms])
    formed_first = sum(not isinstance(term, ExplicitTerm) for term in terms)
    return ExplicitTerm(gradients, forming=formed_first * math.prod(gradients.shape[1:]))


def _inner_product(a: Term, b: Term) -> tf.Tensor:
    """Returns the inner product of every example's two gradients, ``[B]``."""
    if isinstance(b, LookupTerm):
        a, b = b, a
    if (
        isinstance(a, LookupTerm)
        and isinstance(b, MatMulTerm)
        and b.inputs.shape[2] == a.vocabulary  # the table [vocabulary, width] is [p, q]
    ):
        # sum_{s,t} inputs[t, ids[s]] (g[s] . d[t]), over lookups s and positions t
        seen = tf.gather(b.inputs, a.ids, axis=2, batch_dims=1)  # [B, T, S]
        products = tf.matmul(b.output_gradients, a.output_gradients, transpose_b=True)
        return tf.reduce_sum(seen * products, axis=[1, 2])
    both = a.per_example() * b.per_example()
    return tf.reduce_sum(both, axis=list(range(1, both.shape.rank)))
