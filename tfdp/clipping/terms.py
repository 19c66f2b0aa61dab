"""Per-example gradients of one weight, held in factored form.

A term stands for the ``[B, *weight.shape]`` per-example gradients of one use of one weight. It
knows their squared norms and their weighted sum without forming them, unless forming them is the
cheaper way. The batch axis always comes first.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Sequence

import tensorflow as tf


class Term(abc.ABC):
    """Per-example gradients ``[B, *shape]`` of one weight, in float32 or float64."""

    @abc.abstractmethod
    def squared_norm(self) -> tf.Tensor:
        """Returns the squared L2 norm of every example's gradient, ``[B]``."""

    @abc.abstractmethod
    def weighted_sum(self, coefficients: tf.Tensor) -> tf.Tensor:
        """Returns ``sum_i coefficients[i] * gradient[i]`` in the weight's shape."""

    @abc.abstractmethod
    def per_example(self) -> tf.Tensor:
        """Returns the gradients themselves, ``[B, *shape]``."""

    @abc.abstractmethod
    def keep(self, rows: tf.Tensor) -> Term:
        """Returns the term with the rows outside the mask ``rows`` ([B] bool) set to zero.

        A select, not a product: the rows dropped may hold NaN or infinities.
        """


@dataclasses.dataclass(frozen=True)
class ExplicitTerm(Term):
    """Gradients formed one by one; right for small weights such as biases and scales."""

    gradients: tf.Tensor  # [B, *shape]

    def squared_norm(self) -> tf.Tensor:
        flat = _flatten(self.gradients)
        return tf.reduce_sum(flat * flat, axis=1)

    def weighted_sum(self, coefficients: tf.Tensor) -> tf.Tensor:
        flat = tf.matmul(coefficients[tf.newaxis, :], _flatten(self.gradients))
        return tf.reshape(flat, self.gradients.shape[1:])

    def per_example(self) -> tf.Tensor:
        return self.gradients

    def keep(self, rows: tf.Tensor) -> ExplicitTerm:
        return ExplicitTerm(_select_rows(rows, self.gradients))


@dataclasses.dataclass(frozen=True)
class MatMulTerm(Term):
    """Weight of ``outputs = inputs @ weight`` at T positions: ``gradient[i] = inputs[i]^T d[i]``.

    Attributes:
      inputs: ``[B, T, p]``.
      output_gradients: ``[B, T, q]``.
      shape: The weight's own shape; its entries in order are those of ``[p, q]``.
    """

    inputs: tf.Tensor
    output_gradients: tf.Tensor
    shape: tuple[int, ...]

    @property
    def forms_gradients(self) -> bool:
        """Whether the explicit ``[B, p, q]`` gradients are cheaper than the Gram matrices.

        The explicit gradient costs T p q multiplications, but then the clipped sum needs only a
        pass over p q numbers instead of T p q multiplications; the Gram route costs
        T^2 (p + q) on top of that product.
        """
        positions, p = self.inputs.shape[1:]
        q = self.output_gradients.shape[2]
        if positions == 1:
            return False
        gram = positions * positions * (p + q)
        explicit = _MEMORY_PASS_COST * p * q
        return explicit < gram

    def squared_norm(self) -> tf.Tensor:
        if self.inputs.shape[1] == 1:  # a rank-one gradient: |x|^2 |d|^2
            return _row_squares(self.inputs) * _row_squares(self.output_gradients)
        if self.forms_gradients:
            return ExplicitTerm(self._matrices()).squared_norm()
        # |sum_t x_t d_t^T|^2 = sum_{t,t'} (x_t . x_t') (d_t . d_t')   (Goodfellow 2015, ghost norm)
        gram_in = tf.matmul(self.inputs, self.inputs, transpose_b=True)
        gram_out = tf.matmul(self.output_gradients, self.output_gradients, transpose_b=True)
        # Rounding can leave a tiny negative number where the true norm is zero.
        return tf.maximum(tf.reduce_sum(gram_in * gram_out, axis=[1, 2]), 0.0)

    def weighted_sum(self, coefficients: tf.Tensor) -> tf.Tensor:
        if self.forms_gradients:
            return tf.reshape(ExplicitTerm(self._matrices()).weighted_sum(coefficients), self.shape)
        scaled = self.output_gradients * coefficients[:, tf.newaxis, tf.newaxis]
        p, q = self.inputs.shape[2], self.output_gradients.shape[2]
        total = tf.matmul(
            tf.reshape(self.inputs, [-1, p]), tf.reshape(scaled, [-1, q]), transpose_a=True
        )
        return tf.reshape(total, self.shape)

    def per_example(self) -> tf.Tensor:
        return tf.reshape(self._matrices(), [-1, *self.shape])

    def keep(self, rows: tf.Tensor) -> MatMulTerm:
        return MatMulTerm(
            _select_rows(rows, self.inputs),
            _select_rows(rows, self.output_gradients),
            self.shape,
        )

    def _matrices(self) -> tf.Tensor:  # [B, p, q]
        return tf.matmul(self.inputs, self.output_gradients, transpose_a=True)


@dataclasses.dataclass(frozen=True)
class LookupTerm(Term):
    """Table read by ``outputs = table[ids]``; never builds ``[B, vocabulary, width]``.

    Attributes:
      ids: ``[B, T]`` integers.
      output_gradients: ``[B, T, width]``.
      vocabulary: Number of rows of the table.
    """

    ids: tf.Tensor
    output_gradients: tf.Tensor
    vocabulary: int

    def squared_norm(self) -> tf.Tensor:
        # Rows of the table that one example reads twice add up before the norm is taken.
        same = self.ids[:, :, tf.newaxis] == self.ids[:, tf.newaxis, :]
        gram = tf.matmul(self.output_gradients, self.output_gradients, transpose_b=True)
        return tf.maximum(tf.reduce_sum(tf.where(same, gram, 0.0), axis=[1, 2]), 0.0)

    def weighted_sum(self, coefficients: tf.Tensor) -> tf.Tensor:
        scaled = self.output_gradients * coefficients[:, tf.newaxis, tf.newaxis]
        return tf.math.unsorted_segment_sum(
            tf.reshape(scaled, [-1, scaled.shape[2]]), tf.reshape(self.ids, [-1]), self.vocabulary
        )

    def per_example(self) -> tf.Tensor:
        one_hot = tf.one_hot(self.ids, self.vocabulary, dtype=self.output_gradients.dtype)
        return tf.matmul(one_hot, self.output_gradients, transpose_a=True)

    def keep(self, rows: tf.Tensor) -> LookupTerm:
        return LookupTerm(self.ids, _select_rows(rows, self.output_gradients), self.vocabulary)


def merge(terms: Sequence[Term]) -> Term:
    """Joins the uses of one weight into one term, cross terms included.

    The norm of a sum is not the sum of the norms: a weight used twice with gradients g and h has
    norm ``|g + h|``. Uses through matrix products are laid end to end along the positions, which
    keeps the factored form; anything else is added up explicitly.
    """
    if len(terms) == 1:
        return terms[0]
    if all(isinstance(term, MatMulTerm) for term in terms):
        inputs = tf.concat([term.inputs for term in terms], axis=1)
        gradients = tf.concat([term.output_gradients for term in terms], axis=1)
        return MatMulTerm(inputs, gradients, terms[0].shape)
    return ExplicitTerm(tf.add_n([term.per_example() for term in terms]))


# Multiplications that one pass over a number in memory is worth, in units of T^2 (p + q); measured
# on CPUs, where a batched product runs about as fast per multiplication as a flat one.
_MEMORY_PASS_COST = 12


def _flatten(gradients: tf.Tensor) -> tf.Tensor:
    return tf.reshape(gradients, [-1, math.prod(gradients.shape[1:])])


def _row_squares(values: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(values * values, axis=list(range(1, values.shape.rank)))


def _select_rows(rows: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    selector = tf.reshape(rows, [-1] + [1] * (values.shape.rank - 1))
    return tf.where(selector, values, tf.zeros([], values.dtype))
