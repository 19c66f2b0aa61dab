"""Tables that are read by row."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from tfdp.clipping.terms.base import Term, scale_rows, select_rows
from tfdp.clipping.terms.gram import gram_matrices
from tfdp.clipping.terms.rounding import raised_gram


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
        scaled = scale_rows(coefficients, self.output_gradients)
        return tf.math.unsorted_segment_sum(
            tf.reshape(scaled, [-1, scaled.shape[2]]), tf.reshape(self.ids, [-1]), self.vocabulary
        )

    def per_example(self) -> tf.Tensor:
        one_hot = tf.one_hot(self.ids, self.vocabulary, dtype=self.output_gradients.dtype)
        return tf.matmul(one_hot, self.output_gradients, transpose_a=True)

    def norm_numbers(self) -> int:
        return 2 * self.ids.shape[1] ** 2

    def keep(self, rows: tf.Tensor) -> LookupTerm:
        return dataclasses.replace(self, output_gradients=select_rows(rows, self.output_gradients))
