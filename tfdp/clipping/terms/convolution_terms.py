"""Kernels of convolutions, whose patches are never formed."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator

import tensorflow as tf

from tfdp.clipping.terms.ghost_norm import (
    gram_matrices,
    hidden_by_underflow,
    raised_gram,
    raised_product,
)
from tfdp.clipping.terms.matmul_terms import MatMulTerm, product_or_transpose
from tfdp.clipping.terms.term import (
    EXPLICIT_PASS,
    ExplicitTerm,
    Term,
    example_squares,
    scale_examples,
    select_examples,
)
from tfdp.clipping.terms.window import Window, blocks

# With so few channels, as pictures have, copies go channel by channel.
_FEW_CHANNELS = 4

# How many multiplications of a matrix product take the time of adding a number of a Gram matrix
# to another.
_SHIFT = 10


def convolution_term(
    inputs: tf.Tensor,
    output_gradients: tf.Tensor,
    window: Window,
    groups: int,
    shape: tuple[int, ...],
    backward: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
) -> Term:
    """Returns the term of a kernel of shape ``shape``; else see ``ConvolutionTerm``.

    Where its positions do not overlap, as those of patch embeddings and of single places, every
    number belongs to one patch at most, and the convolution is a matrix product.
    """
    if groups > 1 or window.overlaps:
        return ConvolutionTerm(inputs, output_gradients, window, groups, backward)
    positions = tuple(output_gradients.shape[1:-1])
    gradients = tf.reshape(output_gradients, [-1, math.prod(positions), output_gradients.shape[-1]])
    return MatMulTerm(window.patches(inputs, positions), gradients, tuple(shape))


@dataclasses.dataclass(frozen=True)
class ConvolutionTerm(Term):
    """Kernel ``[*window.size, p, groups * q]`` of a convolution.

    Attributes:
      inputs: ``[B, *spatial, groups * p]``.
      output_gradients: ``[B, *positions, groups * q]``.
      window: The geometry.
      groups: Blocks of channels that are convolved apart.
      backward: ``(inputs, output_gradients) -> gradient of the kernel``, summed over the batch.
    """

    inputs: tf.Tensor
    output_gradients: tf.Tensor
    window: Window
    groups: int
    backward: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]

    @property
    def method(self) -> str:
        """The cheapest of "explicit", "streamed" and "ghost"; see ``cheapest_method``."""
        positions = math.prod(self._positions)
        p, q = (t.shape[-1] // self.groups for t in (self.inputs, self.output_gradients))
        ghost = positions * positions * q
        for _, starts, grid in self._seen_phases():
            ghost += math.prod(grid) ** 2 * p + _cost_of_shifts(grid, starts)
        numbers = math.prod(self.window.size) * p * q
        held = math.prod(self.inputs.shape[1:]) + math.prod(self.output_gradients.shape[1:])
        return cheapest_method(positions * numbers, ghost, numbers, self.groups, held)

    def squared_norm(self) -> tf.Tensor:
        if self.method != "ghost":
            places = math.prod(self.window.size)
            scale = places * example_squares(self.inputs) * example_squares(self.output_gradients)
            squares = tf.add_n([example_squares(block) for block in self._blocks])
            return raised_product(squares, scale)
        gram_in = self._gram_of_inputs()
        gradients = self._by_group(self.output_gradients)
        gram_out = gram_matrices(gradients)
        squares = tf.linalg.trace(gram_in), tf.linalg.trace(gram_out)
        lengths = math.prod(self.window.size) * self.inputs.shape[-1], gradients.shape[-1]
        hidden = hidden_by_underflow(*squares, *(gradients.shape[2] * n for n in lengths))
        product = tf.reduce_sum(gram_in * gram_out, axis=[1, 2, 3])
        scale = tf.reduce_sum(math.prod(squares), axis=1)
        return raised_gram(product, scale, sum(lengths)) + tf.reduce_sum(hidden, axis=1)

    def weighted_sum(self, coefficients: tf.Tensor) -> tf.Tensor:
        if self.method == "explicit":
            sums = [ExplicitTerm(block).weighted_sum(coefficients) for block in self._blocks]
            return self._kernel_of(tf.stack(sums)[tf.newaxis])[0]
        return self.backward(self.inputs, scale_examples(coefficients, self.output_gradients))

    def per_example(self) -> tf.Tensor:
        return self._kernel_of(tf.stack(self._blocks, axis=1))

    def norm_numbers(self) -> int:
        if self.method == "ghost":
            positions = math.prod(self._positions)
            largest = max(math.prod(grid) for _, _, grid in self._seen_phases())
            return self.groups * (2 * positions**2 + largest**2)
        _, *others = self.window.size
        rows, channels = self.inputs.shape[1], self.inputs.shape[-1]
        strips = rows * math.prod(self._positions[1:]) * math.prod(others) * channels
        kernel = math.prod(self.window.size) * channels * self.output_gradients.shape[-1]
        return strips + (kernel // self.groups if self.method == "streamed" else 0)

    def keep(self, examples: tf.Tensor) -> ConvolutionTerm:
        return dataclasses.replace(
            self,
            inputs=select_examples(examples, self.inputs),
            output_gradients=select_examples(examples, self.output_gradients),
        )

    @property
    def _positions(self) -> tuple[int, ...]:
        return tuple(self.output_gradients.shape[1:-1])

    @functools.cached_property  # the sum takes what the norm was taken from
    def _blocks(self) -> list[tf.Tensor]:
        """The gradients of every place along the first axis, ``[B, G, other places * p, q]``.

        Or ``[B, G, q, other places * p]`` where q is small.

        Inputs are shifted along the other axes and output gradients along the first, which makes
        fewer and larger products, and fewer copies, than one view of the inputs a place.
        """
        strip, product = self._strip, self._product
        if self.groups == 1 and self.inputs.shape[-1] <= _FEW_CHANNELS:
            strip, product = self._strip_by_channel, self._product_by_channel
        strips: dict[int, tf.Tensor] = {}
        found = []
        for phase, start in self.window.places(0):
            if phase not in strips:
                strips[phase] = strip(phase)
            found.append(product(strips[phase], start))
        return found

    def _product(self, strip: tf.Tensor, start: int) -> tf.Tensor:
        """Returns the gradient of the places whose blocks begin at a row of the strip."""
        positions = self._positions
        margins = [(0, 0), (start, strip.shape[1] - start - positions[0])]
        margins += [(0, 0)] * len(positions)
        shifted = self._by_group(tf.pad(self.output_gradients, margins))
        return product_or_transpose(self._by_group(strip), shifted)

    def _strip(self, phase: int) -> tf.Tensor:
        """What all places along the other axes see, ``[B, rows, *other positions, G * J * p]``."""
        views = []
        for view in self._views(self._phases[phase]):
            split = [-1, *view.shape[1:-1], self.groups, view.shape[-1] // self.groups]
            views.append(tf.reshape(view, split))
        joined = tf.concat(views, axis=-1)
        return tf.reshape(joined, [-1, *joined.shape[1:-2], self.groups * joined.shape[-1]])

    def _product_by_channel(self, strip: tf.Tensor, start: int) -> tf.Tensor:
        """The same from ``_strip_by_channel``."""
        seen = strip[:, :, start : start + self._positions[0]]
        seen = tf.reshape(seen, [-1, 1, seen.shape[1], math.prod(self._positions)])
        return tf.matmul(seen, self._by_group(self.output_gradients))

    def _strip_by_channel(self, phase: int) -> tf.Tensor:
        """The same as ``_strip``, ``[B, J * p, rows, *other positions]``.

        Where channels are few, numbers that follow each other here would lie far apart there, and
        be copied one by one.
        """
        last = self.inputs.shape.rank - 1
        order = [0, last, *range(1, last)]
        views = [tf.transpose(view, order) for view in self._views(self._phases[phase])]
        return tf.concat(views, axis=1)

    def _views(self, phases: tf.Tensor) -> Iterator[tf.Tensor]:
        """Yields what every place along the other axes sees, ``[B, rows, *other positions, C]``."""
        others = self._positions[1:]
        for place in itertools.product(*map(self.window.places, range(1, len(self.window.size)))):
            own, starts = zip(*place, strict=True) if place else ((), ())
            yield phases[(*own, slice(None), slice(None), *blocks(starts, others))]

    def _kernel_of(self, places: tf.Tensor) -> tf.Tensor:
        """``[B, I, G, J * p, q]``, or its transpose, -> ``[B, *size, p, G * q]``."""
        first, *others = self.window.size
        q = self.output_gradients.shape[-1] // self.groups
        if places.shape[-1] != q:  # formed as the transpose
            places = tf.linalg.matrix_transpose(places)
        groups, seen = places.shape[2:4]
        p = seen // math.prod(others)
        places = tf.reshape(places, [-1, first, groups, math.prod(others), p, q])
        places = tf.transpose(places, [0, 1, 3, 4, 2, 5])
        return tf.reshape(places, [-1, first, *others, p, groups * q])

    def _gram_of_inputs(self) -> tf.Tensor:
        """Inner products of what any two positions see, ``[B, G, T, T]``.

        At one place of the kernel they are inner products of two places of the inputs: a block of
        the Gram matrix of the inputs, shifted along both positions.
        """
        total = []
        for phase, starts, grid in self._seen_phases():
            zeros = (0,) * len(grid)
            values = self._by_group(self._phases[(*phase, slice(None), *blocks(zeros, grid))])
            total.append(sum_of_shifts(gram_matrices(values), grid, starts, self._positions))
        return tf.add_n(total)

    def _seen_phases(self) -> Iterator[tuple[tuple[int, ...], list[list[int]], tuple[int, ...]]]:
        """Yields every phase that places see, where their blocks begin, and how far they reach."""
        for phase in itertools.product(*map(range, self.window.strides)):
            starts = self.window.starts(phase)
            if all(starts):
                reach = zip(starts, self._positions, strict=True)
                yield phase, starts, tuple(max(own) + n for own, n in reach)

    @functools.cached_property
    def _phases(self) -> tf.Tensor:
        # Not before there are output gradients: else all layers' copies live from the forward pass.
        with tf.control_dependencies([self.output_gradients]):
            inputs = tf.identity(self.inputs)
        return self.window.phases(inputs, self._positions)

    def _by_group(self, values: tf.Tensor) -> tf.Tensor:
        """``[B, *positions, G * n] -> [B, G, T, n]``."""
        positions, channels = math.prod(values.shape[1:-1]), values.shape[-1]
        if self.groups == 1:
            return tf.reshape(values, [-1, 1, positions, channels])
        split = tf.reshape(values, [-1, positions, self.groups, channels // self.groups])
        return tf.transpose(split, [0, 2, 1, 3])


def sum_of_shifts(
    gram: tf.Tensor,
    grid: tuple[int, ...],
    starts: list[list[int]],
    positions: tuple[int, ...],
) -> tf.Tensor:
    """Adds blocks up that begin at the same place along both positions.

    Args:
      gram: ``[B, G, M, M]``, where M are all places of the grid.
      grid: Its length along every axis.
      starts: For every axis where blocks begin; all combinations are added.
      positions: Length of the blocks along every axis.

    Returns:
      ``[B, G, T, T]``, where T is the number of positions.
    """
    groups, sizes = gram.shape[1], list(grid)
    for axis, (own, n) in enumerate(zip(starts, positions, strict=True)):
        before, after = math.prod(sizes[:axis]), math.prod(sizes[axis + 1 :])
        apart = tf.reshape(gram, [-1, before, sizes[axis], after * before, sizes[axis], after])
        gram = tf.add_n([apart[:, :, s : s + n, :, s : s + n] for s in own])
        sizes[axis] = n
    total = math.prod(positions)
    return tf.reshape(gram, [-1, groups, total, total])


def cheapest_method(product: int, ghost: int, numbers: int, groups: int, held: int) -> str:
    """Returns "explicit", "streamed" or "ghost" for a convolution of ``groups`` blocks.

    Explicit: form the gradient, take its norm, and add it up. Streamed: form the gradient for the
    norm, one place along its first axis after the other, throw it away, and form the clipped sum
    from inputs and output gradients. Ghost: the norm comes from Gram matrices, and the clipped sum
    from inputs and output gradients.

    Args:
      product: Multiplications of the gradient of one group.
      ghost: Those of its ghost norm.
      numbers: Numbers in the kernel of one group.
      groups: Number of groups.
      held: Numbers an example that the layer's inputs and outputs have.
    """
    costs = {"streamed": 2 * product, "ghost": ghost + product}
    if groups * numbers <= 2 * held:  # else more than activations and their gradients take
        costs["explicit"] = product + EXPLICIT_PASS * numbers
    return min(costs, key=lambda method: costs[method])


def _cost_of_shifts(grid: tuple[int, ...], starts: list[list[int]]) -> int:
    """What adding up shifted blocks of a Gram matrix over a grid takes, in multiplications."""
    return _SHIFT * math.prod(grid) ** 2 * sum(map(len, starts))
