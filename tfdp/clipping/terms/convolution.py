"""Kernels of convolutions, without patches: one matrix product for every place in the window."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator

import tensorflow as tf

from tfdp.clipping.terms.base import ExplicitTerm, Term, row_squares, scale_rows, select_rows
from tfdp.clipping.terms.cost import cheapest_for_convolution
from tfdp.clipping.terms.matmul import MatMulTerm
from tfdp.clipping.terms.rounding import raised_gram, raised_product


@dataclasses.dataclass(frozen=True)
class Window:
    """The geometry of a convolution over any number of spatial axes.

    Attributes:
      size: Places of the kernel along every axis.
      strides: Steps between positions along every axis.
      dilation: Steps between places of the kernel along every axis.
      padding: "valid" or "same".
    """

    size: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: str

    @property
    def overlaps(self) -> bool:
        """Whether two positions may see the same place of the inputs."""
        steps = zip(self.strides, self.size, strict=True)
        return set(self.dilation) != {1} or any(stride < size for stride, size in steps)

    def patches(self, inputs: tf.Tensor, positions: tuple[int, ...]) -> tf.Tensor:
        """Returns what a window that does not overlap sees, ``[B, T, places * C]``."""
        rank = len(self.size)
        kept = (*map(slice, self.size), slice(None), *map(slice, positions))
        phases = self._phases(inputs, positions)[kept]
        order = [*range(rank, 2 * rank + 1), *range(rank), 2 * rank + 1]
        width = math.prod(self.size) * inputs.shape[-1]
        return tf.reshape(tf.transpose(phases, order), [-1, math.prod(positions), width])

    def views(self, inputs: tf.Tensor, positions: tuple[int, ...]) -> Iterator[tf.Tensor]:
        """Yields, for every place of the kernel in order, what it sees at all positions.

        Args:
          inputs: ``[B, *spatial, C]``.
          positions: How many positions the window takes along every axis.

        Yields:
          ``[B, T, C]``, where T is the number of positions.
        """
        phases = self._phases(inputs, positions)
        for place in itertools.product(*map(range, self.size)):
            offsets = [i * dilation for i, dilation in zip(place, self.dilation, strict=True)]
            phase, starts = zip(
                *(divmod(o, s)[::-1] for o, s in zip(offsets, self.strides, strict=True)),
                strict=True,
            )
            slices = [slice(start, start + n) for start, n in zip(starts, positions, strict=True)]
            view = phases[(*phase, slice(None), *slices, slice(None))]
            yield tf.reshape(view, [-1, math.prod(positions), inputs.shape[-1]])

    def _phases(self, inputs: tf.Tensor, positions: tuple[int, ...]) -> tf.Tensor:
        spatial = inputs.shape[1:-1]
        steps = list(zip(positions, self.strides, self.dilation, strict=True))
        margins = [self._margins(*axis) for axis in zip(spatial, self.size, steps, strict=True)]
        return _phases(tf.pad(inputs, [(0, 0), *margins, (0, 0)]), self.strides)

    def _margins(self, length: int, k: int, steps: tuple[int, int, int]) -> tuple[int, int]:
        n, stride, dilation = steps
        reach = (n - 1) * stride + (k - 1) * dilation + 1
        before = max(reach - length, 0) // 2 if self.padding == "same" else 0
        after = max(reach - length - before, 0)
        return before, after + -(before + length + after) % stride


def _phases(values: tf.Tensor, strides: tuple[int, ...]) -> tf.Tensor:
    """Lays ``[B, *spatial, C]`` out as ``[*strides, B, *(spatial / strides), C]``.

    Steps of a stride become steps of one: TensorFlow slices with strides number by number.
    """
    spatial, rank = values.shape[1:-1], len(strides)
    split = [n for length, s in zip(spatial, strides, strict=True) for n in (length // s, s)]
    steps = [2 + 2 * axis for axis in range(rank)]
    order = [*steps, 0, *(step - 1 for step in steps), 1 + 2 * rank]
    return tf.transpose(tf.reshape(values, [-1, *split, values.shape[-1]]), order)


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
    def way(self) -> str:
        """The cheapest way: "explicit", "streamed" or "gram"; see ``terms.cost``."""
        positions = math.prod(self.output_gradients.shape[1:-1])
        p, q = (t.shape[-1] // self.groups for t in (self.inputs, self.output_gradients))
        places = math.prod(self.window.size)
        held = math.prod(self.inputs.shape[1:]) + math.prod(self.output_gradients.shape[1:])
        return cheapest_for_convolution(positions, places * p, q, self.groups, held)

    def squared_norm(self) -> tf.Tensor:
        if self.way != "gram":
            places = math.prod(self.window.size)
            scale = places * row_squares(self.inputs) * row_squares(self.output_gradients)
            squares = tf.add_n([row_squares(block) for block in self._blocks])
            return raised_product(squares, scale)
        gram_in = tf.add_n([tf.matmul(v, v, transpose_b=True) for v in self._views()])
        gradients = self._gradients()
        gram_out = tf.matmul(gradients, gradients, transpose_b=True)
        scale = tf.reduce_sum(tf.linalg.trace(gram_in) * tf.linalg.trace(gram_out), axis=1)
        length = math.prod(self.window.size) * self.inputs.shape[-1] + gradients.shape[-1]
        return raised_gram(tf.reduce_sum(gram_in * gram_out, axis=[1, 2, 3]), scale, length)

    def weighted_sum(self, coefficients: tf.Tensor) -> tf.Tensor:
        if self.way == "explicit":
            return ExplicitTerm(self.per_example()).weighted_sum(coefficients)
        return self.backward(self.inputs, scale_rows(coefficients, self.output_gradients))

    def per_example(self) -> tf.Tensor:
        blocks = tf.stack(self._blocks, axis=1)  # [B, places, G, p, q]
        _, _, groups, p, q = blocks.shape
        blocks = tf.transpose(blocks, [0, 1, 3, 2, 4])
        return tf.reshape(blocks, [-1, *self.window.size, p, groups * q])

    def keep(self, rows: tf.Tensor) -> ConvolutionTerm:
        return dataclasses.replace(
            self,
            inputs=select_rows(rows, self.inputs),
            output_gradients=select_rows(rows, self.output_gradients),
        )

    @functools.cached_property  # the sum takes what the norm was taken from
    def _blocks(self) -> list[tf.Tensor]:
        """The gradients ``[B, G, p, q]`` of every place of the kernel."""
        gradients = self._gradients()
        return [tf.matmul(view, gradients, transpose_a=True) for view in self._views()]

    def _views(self) -> Iterator[tf.Tensor]:  # [B, G, T, p]
        positions = tuple(self.output_gradients.shape[1:-1])
        return map(self._grouped, self.window.views(self.inputs, positions))

    def _gradients(self) -> tf.Tensor:  # [B, G, T, q]
        positions = math.prod(self.output_gradients.shape[1:-1])
        channels = self.output_gradients.shape[-1]
        return self._grouped(tf.reshape(self.output_gradients, [-1, positions, channels]))

    def _grouped(self, values: tf.Tensor) -> tf.Tensor:
        _, positions, channels = values.shape
        if self.groups == 1:
            return values[:, tf.newaxis]
        split = tf.reshape(values, [-1, positions, self.groups, channels // self.groups])
        return tf.transpose(split, [0, 2, 1, 3])
