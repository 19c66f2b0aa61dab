"""Per-example gradients of one use of one weight: what each form must know, and the plainest."""

from __future__ import annotations

import abc
import dataclasses
import math

import tensorflow as tf

# How many multiplications of a matrix product take the time of passing over one number of an
# explicit gradient, which is written, squared and added up. Where forming gradients and ghost norms
# take the same time, ghost norms need less memory, so the number lies at the upper end of what is
# measured.
EXPLICIT_PASS = 40


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
        """Returns how many numbers an example takes in memory while its norm is formed.

        What there is in any case, or stays for the sum, does not count.
        """
        return 0

    @property
    def forms_gradients(self) -> bool:
        """Whether the norm is of explicit gradients, and bounds no sum that rounds otherwise."""
        return False

    def by_user(self, examples_per_user: int) -> Term:
        """Returns the sums of the gradients of every user's consecutive examples, as one term.

        Args:
          examples_per_user: How many of the B examples each user has.
        """
        gradients = split_by_user(self.per_example(), examples_per_user)
        return ExplicitTerm(tf.reduce_sum(gradients, axis=1))

    @abc.abstractmethod
    def keep(self, examples: tf.Tensor) -> Term:
        """Returns the term with the gradients of all other examples set to zero.

        A select, not a product: the gradients dropped may hold NaN or infinities.

        Args:
          examples: ``[B]`` bool.
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
        return example_squares(self.gradients)

    def weighted_sum(self, coefficients: tf.Tensor) -> tf.Tensor:
        # Not as a product of a vector and a matrix: XLA's takes four times as long on CPUs.
        return tf.reduce_sum(scale_examples(coefficients, self.gradients), axis=0)

    def per_example(self) -> tf.Tensor:
        return self.gradients

    @property
    def forms_gradients(self) -> bool:
        return True

    def norm_numbers(self) -> int:
        return self.forming

    def keep(self, examples: tf.Tensor) -> ExplicitTerm:
        return ExplicitTerm(select_examples(examples, self.gradients))


def example_squares(values: tf.Tensor) -> tf.Tensor:
    """Sums the squares of every example's numbers: ``[B, ...] -> [B]``."""
    squares = values * values
    if squares.shape.rank > 2:
        # XLA adds along the last axis one number after the other, except in a product. The product
        # is of plain matrices: TensorFlow's, of a stack by one vector, may read out of bounds.
        length = squares.shape[-1]
        rows = tf.matmul(tf.reshape(squares, [-1, length]), tf.ones([length, 1], squares.dtype))
        squares = tf.reshape(rows, [-1, math.prod(squares.shape[1:-1])])
    return tf.reduce_sum(squares, axis=1) if squares.shape.rank == 2 else squares


def scale_examples(coefficients: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Multiplies ``values[i]`` by ``coefficients[i]``."""
    return values * tf.reshape(coefficients, [-1] + [1] * (values.shape.rank - 1))


def select_examples(examples: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Sets what ``values`` holds of examples outside the mask ``examples`` ([B] bool) to zero."""
    selector = tf.reshape(examples, [-1] + [1] * (values.shape.rank - 1))
    return tf.where(selector, values, tf.zeros([], values.dtype))


def split_by_user(values: tf.Tensor, examples_per_user: int) -> tf.Tensor:
    """``[users * examples_per_user, ...] -> [users, examples_per_user, ...]``."""
    return tf.reshape(values, [-1, examples_per_user, *values.shape[1:]])


def end_to_end(values: tf.Tensor, examples_per_user: int) -> tf.Tensor:
    """``[users * examples_per_user, T, ...] -> [users, examples_per_user * T, ...]``.

    A sum over examples is a sum over positions: a user is an example of so many times as many of
    them, and the gradient keeps its factored form.
    """
    return tf.reshape(values, [-1, examples_per_user * values.shape[1], *values.shape[2:]])
