"""What the window of a convolution sees of its inputs."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Window:
    """The geometry of a convolution over any number of spatial axes.

    Steps of a stride become steps of one (TensorFlow slices with strides number by number): inputs
    are laid out by phases, and a place of the kernel sees, at all positions, a block of one phase.

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

    def places(self, axis: int) -> list[tuple[int, int]]:
        """Returns the phase, and where in it the block begins, of every place along an axis."""
        stride, dilation = self.strides[axis], self.dilation[axis]
        return [divmod(i * dilation, stride)[::-1] for i in range(self.size[axis])]

    def starts(self, phase: tuple[int, ...]) -> list[list[int]]:
        """Returns for every axis where the blocks of the places that see this phase begin."""
        return [
            [start for own, start in self.places(axis) if own == wanted]
            for axis, wanted in enumerate(phase)
        ]

    def patches(self, inputs: tf.Tensor, positions: tuple[int, ...]) -> tf.Tensor:
        """Returns what a window that does not overlap sees, ``[B, T, places * C]``."""
        rank = len(self.size)
        kept = (*map(slice, self.size), slice(None), *map(slice, positions))
        phases = self.phases(inputs, positions)[kept]
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
        phases = self.phases(inputs, positions)
        for place in itertools.product(*map(self.places, range(len(self.size)))):
            phase, starts = zip(*place, strict=True)
            view = phases[(*phase, slice(None), *blocks(starts, positions))]
            yield tf.reshape(view, [-1, math.prod(positions), inputs.shape[-1]])

    def phases(self, inputs: tf.Tensor, positions: tuple[int, ...]) -> tf.Tensor:
        """Lays the padded inputs out as ``[*strides, B, *(spatial / strides), C]``."""
        spatial = inputs.shape[1:-1]
        axes = zip(spatial, positions, self.size, self.strides, self.dilation, strict=True)
        margins = [_margins(*axis, self.padding) for axis in axes]
        padded = tf.pad(inputs, [(0, 0), *margins, (0, 0)])
        lengths, rank = padded.shape[1:-1], len(spatial)
        pairs = zip(lengths, self.strides, strict=True)
        split = [n for length, stride in pairs for n in (length // stride, stride)]
        steps = [2 + 2 * axis for axis in range(rank)]
        order = [*steps, 0, *(step - 1 for step in steps), 1 + 2 * rank]
        return tf.transpose(tf.reshape(padded, [-1, *split, inputs.shape[-1]]), order)


def blocks(starts: tuple[int, ...], lengths: tuple[int, ...]) -> list[slice]:
    """Returns one slice an axis."""
    return [slice(start, start + n) for start, n in zip(starts, lengths, strict=True)]


def _margins(
    length: int, positions: int, size: int, stride: int, dilation: int, padding: str
) -> tuple[int, int]:
    reach = (positions - 1) * stride + (size - 1) * dilation + 1
    before = max(reach - length, 0) // 2 if padding == "same" else 0
    after = max(reach - length - before, 0)
    return before, after + -(before + length + after) % stride
