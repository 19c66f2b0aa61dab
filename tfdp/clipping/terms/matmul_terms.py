"""Weights of matrix products, and tables that are read by index."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

import tensorflow as tf

from tfdp.clipping.terms.ghost_norm import (
    FEW_POSITIONS,
    gram_matrices,
    hidden_by_underflow,
    raised_gram,
    raised_product,
    squared_ghost_norm,
)
from tfdp.clipping.terms.term import (
    EXPLICIT_PASS,
    ExplicitTerm,
    Term,
    end_to_end,
    example_squares,
    scale_examples,
    select_examples,
    split_by_user,
)

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
        """Whether the explicit ``[B, p, q]`` gradients are cheaper than ghost norms."""
        positions, p = self.inputs.shape[1:]
        return positions > 1 and explicit_is_cheaper(positions, p, self.output_gradients.shape[2])

    def squared_norm(self) -> tf.Tensor:
        if self.inputs.shape[1] == 1:  # a rank-one gradient: |x|^2 |d|^2
            x, d = example_squares(self.inputs), example_squares(self.output_gradients)
            p, q = self.inputs.shape[2], self.output_gradients.shape[2]
            return x * d + hidden_by_underflow(x, d, p, q)
        if self.forms_gradients:
            return example_squares(self._matrices)
        return squared_ghost_norm(self.inputs, self.output_gradients)

    def weighted_sum(self, coefficients: tf.Tensor) -> tf.Tensor:
        if self.forms_gradients:
            total = ExplicitTerm(self._matrices).weighted_sum(coefficients)
            return tf.reshape(tf.transpose(total) if self._few_columns else total, self.shape)
        inputs, gradients = self.inputs, self.output_gradients
        p, q = inputs.shape[2], gradients.shape[2]
        if p < q:  # the factors go to the narrower side
            inputs = scale_examples(coefficients, inputs)
        else:
            gradients = scale_examples(coefficients, gradients)
        total = _sum_of_products(tf.reshape(inputs, [-1, p]), tf.reshape(gradients, [-1, q]))
        return tf.reshape(total, self.shape)

    def per_example(self) -> tf.Tensor:
        matrices = self._matrices
        if self._few_columns:
            matrices = tf.linalg.matrix_transpose(matrices)
        return tf.reshape(matrices, [-1, *self.shape])

    def norm_numbers(self) -> int:
        positions = self.inputs.shape[1]
        grams = positions > FEW_POSITIONS and not self.forms_gradients
        return 2 * positions**2 if grams else 0

    def by_user(self, examples_per_user: int) -> MatMulTerm:
        return self._with(lambda values: end_to_end(values, examples_per_user))

    def keep(self, examples: tf.Tensor) -> MatMulTerm:
        return self._with(lambda values: select_examples(examples, values))

    def _with(self, change: Callable[[tf.Tensor], tf.Tensor]) -> MatMulTerm:
        return MatMulTerm(change(self.inputs), change(self.output_gradients), self.shape)

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
        scale = example_squares(self.inputs) * example_squares(self.output_gradients)
        return raised_product(tf.reduce_sum(tf.reshape(squares, [-1, groups]), axis=1), scale)

    def weighted_sum(self, coefficients: tf.Tensor) -> tf.Tensor:
        scaled = scale_examples(coefficients, self.output_gradients)
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

    def by_user(self, examples_per_user: int) -> GroupedMatMulTerm:
        def lay(values: tf.Tensor) -> tf.Tensor:
            """``[users * each, G, T, n] -> [users, G, each * T, n]``."""
            _, groups, positions, numbers = values.shape
            split = split_by_user(values, examples_per_user)
            side_by_side = tf.transpose(split, [0, 2, 1, 3, 4])
            return tf.reshape(side_by_side, [-1, groups, examples_per_user * positions, numbers])

        return self._with(lay)

    def keep(self, examples: tf.Tensor) -> GroupedMatMulTerm:
        return self._with(lambda values: select_examples(examples, values))

    def _with(self, change: Callable[[tf.Tensor], tf.Tensor]) -> GroupedMatMulTerm:
        inputs, gradients = change(self.inputs), change(self.output_gradients)
        return dataclasses.replace(self, inputs=inputs, output_gradients=gradients)

    def _one_by_one(self) -> MatMulTerm:
        """The groups of all examples as examples of their own."""
        inputs, gradients = (
            tf.reshape(t, [-1, *t.shape[2:]]) for t in (self.inputs, self.output_gradients)
        )
        return MatMulTerm(inputs, gradients, (math.prod(self.sizes) // self.inputs.shape[1],))


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
        gram = gram_matrices(self.output_gradients)
        zero = tf.zeros([], gram.dtype)
        lengths = tf.norm(self.output_gradients, axis=2, keepdims=True)
        scale = tf.where(same, tf.matmul(lengths, lengths, transpose_b=True), zero)
        squares = tf.reduce_sum(tf.where(same, gram, zero), axis=[1, 2])
        width = self.output_gradients.shape[2]
        return raised_gram(squares, tf.reduce_sum(scale, axis=[1, 2]), width)

    def weighted_sum(self, coefficients: tf.Tensor) -> tf.Tensor:
        scaled = scale_examples(coefficients, self.output_gradients)
        return tf.math.unsorted_segment_sum(
            tf.reshape(scaled, [-1, scaled.shape[2]]), tf.reshape(self.ids, [-1]), self.vocabulary
        )

    def per_example(self) -> tf.Tensor:
        one_hot = tf.one_hot(self.ids, self.vocabulary, dtype=self.output_gradients.dtype)
        return tf.matmul(one_hot, self.output_gradients, transpose_a=True)

    def norm_numbers(self) -> int:
        return 2 * self.ids.shape[1] ** 2

    def by_user(self, examples_per_user: int) -> LookupTerm:
        return dataclasses.replace(
            self,
            ids=end_to_end(self.ids, examples_per_user),
            output_gradients=end_to_end(self.output_gradients, examples_per_user),
        )

    def keep(self, examples: tf.Tensor) -> LookupTerm:
        return dataclasses.replace(
            self, output_gradients=select_examples(examples, self.output_gradients)
        )


def explicit_is_cheaper(positions: int, p: int, q: int) -> bool:
    """Whether to form the per-example gradients ``[p, q]`` of T positions rather than ghost norms.

    In multiplications an example, forming the gradient takes T p q, and its norm and sum passes
    over p q numbers; a ghost norm takes T^2 (p + q), and the sum T p q.
    """
    if p * q <= positions:  # the gradient is free, and the norm has no rounding
        return True
    if p * q > positions * (p + q):  # it would need more memory than what it is formed from
        return False
    return EXPLICIT_PASS * p * q < positions * positions * (p + q)


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
