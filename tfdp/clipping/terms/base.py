"""What a term must know, and the plainest one."""

from __future__ import annotations

import abc
import dataclasses
import math

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

    def norm_numbers(self) -> int:
        """How many numbers an example the norm takes in memory while it is formed.

        What there is in any case, or stays for the sum, does not count.
        """
        return 0

    @abc.abstractmethod
    def keep(self, rows: tf.Tensor) -> Term:
        """Returns the term with the rows outside the mask ``rows`` ([B] bool) set to zero.

        A select, not a product: the rows dropped may hold NaN or infinities.
        """


@dataclasses.dataclass(frozen=True)
class ExplicitTerm(Term):
    """Gradients formed one by one; right for small weights such as biases and scales.

    Attributes:
      gradients: ``[B, *shape]``.
      forming: How many other numbers an example takes in memory while they are formed.
    """

    gradients: tf.Tensor
    forming: int = 0

    def squared_norm(self) -> tf.Tensor:
        return row_squares(self.gradients)

    def weighted_sum(self, coefficients: tf.Tensor) -> tf.Tensor:
        # Not as a product of a vector and a matrix: XLA's takes four times as long on CPUs.
        return tf.reduce_sum(scale_rows(coefficients, self.gradients), axis=0)

    def per_example(self) -> tf.Tensor:
        return self.gradients

    def norm_numbers(self) -> int:
        return self.forming

    def keep(self, rows: tf.Tensor) -> ExplicitTerm:
        return ExplicitTerm(select_rows(rows, self.gradients))


def row_squares(values: tf.Tensor) -> tf.Tensor:
    """Sums the squares of every example's numbers: ``[B, ...] -> [B]``."""
    squares = values * values
    if squares.shape.rank > 2:
        # XLA adds along the last axis one number after the other, except in a product. The product
        # is of plain matrices: TensorFlow's, of a stack by one vector, may read out of bounds.
        length = squares.shape[-1]
        rows = tf.matmul(tf.reshape(squares, [-1, length]), tf.ones([length, 1], squares.dtype))
        squares = tf.reshape(rows, [-1, math.prod(squares.shape[1:-1])])
    return tf.reduce_sum(squares, axis=1) if squares.shape.rank == 2 else squares


def scale_rows(coefficients: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Multiplies ``values[i]`` by ``coefficients[i]``."""
    return values * tf.reshape(coefficients, [-1] + [1] * (values.shape.rank - 1))


def select_rows(rows: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Sets the rows of ``values`` outside the mask ``rows`` to zero."""
    selector = tf.reshape(rows, [-1] + [1] * (values.shape.rank - 1))
    return tf.where(selector, values, tf.zeros([], values.dtype))
