"""Weights of matrix products."""

from __future__ import annotations

import dataclasses
import functools
import math

import tensorflow as tf

from tfdp.clipping.terms.base import ExplicitTerm, Term, row_squares, scale_rows, select_rows
from tfdp.clipping.terms.cost import explicit_is_cheaper
from tfdp.clipping.terms.gram import gram_matrices
from tfdp.clipping.terms.rounding import (
    hidden_by_underflow,
    raised_along,
    raised_gram,
    raised_product,
)

_FEW_POSITIONS = 4
_FEW_ENTRIES = 2**20  # of a weight: the transposition costs next to nothing


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
        """Whether the explicit ``[B, p, q]`` gradients are cheaper than the Gram matrices."""
        positions, p = self.inputs.shape[1:]
        return positions > 1 and explicit_is_cheaper(positions, p, self.output_gradients.shape[2])

    def squared_norm(self) -> tf.Tensor:
        if self.inputs.shape[1] == 1:  # a rank-one gradient: |x|^2 |d|^2
            x, d = row_squares(self.inputs), row_squares(self.output_gradients)
            p, q = self.inputs.shape[2], self.output_gradients.shape[2]
            return x * d + hidden_by_underflow(x, d, p, q)
        if self.forms_gradients:
            return row_squares(self._matrices)
        return gram_product(self.inputs, self.output_gradients)

    def weighted_sum(self, coefficients: tf.Tensor) -> tf.Tensor:
        if self.forms_gradients:
            total = ExplicitTerm(self._matrices).weighted_sum(coefficients)
            return tf.reshape(tf.transpose(total) if self._few_columns else total, self.shape)
        inputs, gradients = self.inputs, self.output_gradients
        p, q = inputs.shape[2], gradients.shape[2]
        if p < q:  # the factors go to the narrower side
            inputs = scale_rows(coefficients, inputs)
        else:
            gradients = scale_rows(coefficients, gradients)
        total = _sum_of_products(tf.reshape(inputs, [-1, p]), tf.reshape(gradients, [-1, q]))
        return tf.reshape(total, self.shape)

    def per_example(self) -> tf.Tensor:
        matrices = self._matrices
        if self._few_columns:
            matrices = tf.linalg.matrix_transpose(matrices)
        return tf.reshape(matrices, [-1, *self.shape])

    def norm_numbers(self) -> int:
        positions = self.inputs.shape[1]
        grams = positions > _FEW_POSITIONS and not self.forms_gradients
        return 2 * positions**2 if grams else 0

    def keep(self, rows: tf.Tensor) -> MatMulTerm:
        return MatMulTerm(
            select_rows(rows, self.inputs),
            select_rows(rows, self.output_gradients),
            self.shape,
        )

    @property
    def _few_columns(self) -> bool:
        return _few_columns(self.inputs.shape[2], self.output_gradients.shape[2])

    @functools.cached_property  # the sum takes what the norm was taken from
    def _matrices(self) -> tf.Tensor:  # [B, p, q], or [B, q, p] where q is small
        return product_or_transpose(self.inputs, self.output_gradients)


@dataclasses.dataclass(frozen=True)
class GroupedMatMulTerm(Term):
    """Weight of G matrix products side by side, such as one matrix per head or per position.

    Attributes:
      inputs: ``[B, G, T, p]``.
      output_gradients: ``[B, G, T, q]``.
      sizes: The weight's axes in the order of ``[G, p, q]``, each of which may be several.
      order: Permutation that brings these axes to the weight's own order.
    """

    inputs: tf.Tensor
    output_gradients: tf.Tensor
    sizes: tuple[int, ...]
    order: tuple[int, ...]

    def squared_norm(self) -> tf.Tensor:
        groups = self.inputs.shape[1]
        squares = self._one_by_one().squared_norm()
        scale = row_squares(self.inputs) * row_squares(self.output_gradients)
        return raised_product(tf.reduce_sum(tf.reshape(squares, [-1, groups]), axis=1), scale)

    def weighted_sum(self, coefficients: tf.Tensor) -> tf.Tensor:
        scaled = scale_rows(coefficients, self.output_gradients)
        total = tf.einsum("bgtp,bgtq->gpq", self.inputs, scaled)
        return tf.transpose(tf.reshape(total, self.sizes), self.order)

    def per_example(self) -> tf.Tensor:
        matrices = tf.matmul(self.inputs, self.output_gradients, transpose_a=True)
        matrices = tf.reshape(matrices, [-1, *self.sizes])
        return tf.transpose(matrices, [0, *(axis + 1 for axis in self.order)])

    def norm_numbers(self) -> int:
        one = self._one_by_one()
        groups, p, q = self.inputs.shape[1], self.inputs.shape[3], self.output_gradients.shape[3]
        return groups * (p * q if one.forms_gradients else one.norm_numbers())

    def keep(self, rows: tf.Tensor) -> GroupedMatMulTerm:
        return dataclasses.replace(
            self,
            inputs=select_rows(rows, self.inputs),
            output_gradients=select_rows(rows, self.output_gradients),
        )

    def _one_by_one(self) -> MatMulTerm:
        """The groups of all examples as examples of their own."""
        inputs, gradients = (
            tf.reshape(t, [-1, *t.shape[2:]]) for t in (self.inputs, self.output_gradients)
        )
        return MatMulTerm(inputs, gradients, (math.prod(self.sizes) // self.inputs.shape[1],))


def product_or_transpose(inputs: tf.Tensor, gradients: tf.Tensor) -> tf.Tensor:
    """Returns ``inputs^T @ gradients`` ``[..., p, q]``, or ``[..., q, p]`` where q is small."""
    if _few_columns(inputs.shape[-1], gradients.shape[-1]):
        inputs, gradients = gradients, inputs
    return tf.matmul(inputs, gradients, transpose_a=True)


def _few_columns(p: int, q: int) -> bool:
    """Whether a product ``[p, q]`` is better formed as its transpose.

    On CPUs one with few columns takes up to a quarter longer.
    """
    return p >= 2 * q


def _sum_of_products(inputs: tf.Tensor, gradients: tf.Tensor) -> tf.Tensor:
    """Returns ``inputs^T @ gradients`` of ``[N, p]`` and ``[N, q]``."""
    p, q = inputs.shape[1], gradients.shape[1]
    if not _few_columns(p, q) or p * q > _FEW_ENTRIES:
        return tf.matmul(inputs, gradients, transpose_a=True)
    # By halves, since XLA swaps a product that is transposed as a whole back.
    halves = tf.split(tf.matmul(gradients, inputs, transpose_a=True), [p // 2, p - p // 2], axis=1)
    return tf.concat([tf.transpose(half) for half in halves], axis=0)


def gram_product(inputs: tf.Tensor, output_gradients: tf.Tensor) -> tf.Tensor:
    """Returns ``|inputs[i]^T output_gradients[i]|^2`` for ``[B, T, p]`` and ``[B, T, q]``.

    ``|sum_t x_t d_t^T|^2 = sum_{t,t'} (x_t . x_t') (d_t . d_t')``: the ghost norm of Li et al.
    2021, "Large Language Models Can Be Strong Differentially Private Learners", eq. 4.
    """
    if inputs.shape[1] <= _FEW_POSITIONS:
        return _small_gram_product(inputs, output_gradients)
    gram_in, gram_out = gram_matrices(inputs), gram_matrices(output_gradients)
    squares = tf.linalg.trace(gram_in), tf.linalg.trace(gram_out)  # |inputs|^2, |gradients|^2
    lengths = inputs.shape[2], output_gradients.shape[2]
    hidden = hidden_by_underflow(*squares, *(inputs.shape[1] * n for n in lengths))
    product = tf.reduce_sum(gram_in * gram_out, axis=[1, 2])
    return raised_gram(product, math.prod(squares), sum(lengths)) + hidden


def _small_gram_product(inputs: tf.Tensor, output_gradients: tf.Tensor) -> tf.Tensor:
    """The same in float64, which costs nothing at few positions: those of siamese towers cancel."""

    def gram(values: tf.Tensor) -> tf.Tensor:
        values = tf.cast(values, tf.float64)
        # Not a matrix product: TPUs have none in float64.
        return tf.reduce_sum(values[:, :, tf.newaxis] * values[:, tf.newaxis], axis=-1)

    gram_in, gram_out = gram(inputs), gram(output_gradients)
    squares = tf.maximum(tf.reduce_sum(gram_in * gram_out, axis=[1, 2]), 0)
    scale = tf.linalg.trace(gram_in) * tf.linalg.trace(gram_out)
    if inputs.dtype == tf.float32:
        squares = raised_along(squares, scale)
    return raised_product(tf.cast(squares, inputs.dtype), tf.cast(scale, inputs.dtype))
