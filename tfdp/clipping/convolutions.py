"""Whether a model's work is mostly that of convolutions."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

_OTHER_CONVOLUTIONS = frozenset(("Conv3D", "Conv2DBackpropInput", "Conv3DBackpropInputV2"))


class _Kind(NamedTuple):
    """A kind of convolutions.

    Attributes:
      outputs: How many axes of the kernel, from its end, are not summed over.
      cost: How many multiplications of a matrix product take as long as one of its own under XLA.
    """

    outputs: int
    cost: int


_PLAIN = {"Conv2D": _Kind(1, 1), "DepthwiseConv2dNative": _Kind(2, 64)}


def mostly_plain_convolutions(graph: Any) -> bool:
    """Whether XLA had better not compile a model for CPUs.

    TensorFlow's own two-dimensional convolutions are faster there: under XLA a small network of
    them took 1.1 to 1.4 times as long, ordinary or private, ResNet-50 three times, and networks
    with depthwise ones three to five times. For grouped and three-dimensional ones it lacks some
    gradients, which XLA has.

    Args:
      graph: A ``tf.Graph`` of the model's forward pass.
    """
    convolved = multiplied = 0
    for operation in graph.get_operations():
        if operation.type in _OTHER_CONVOLUTIONS:
            return False
        if kind := _PLAIN.get(operation.type):
            kernel = operation.inputs[1].shape
            if not kernel.is_fully_defined():  # one that is computed, as RandomElasticTransform's
                continue
            if not _is_plain(operation):
                return False
            inner = math.prod(kernel[: -kind.outputs])
            convolved += kind.cost * _numbers(operation.outputs[0]) * inner
        elif operation.type in ("MatMul", "BatchMatMulV2", "Einsum"):
            # [a, b] times [b, c] takes abc, the root of ab * bc * ac; stacks count for more.
            tensors = (*operation.inputs, *operation.outputs)
            multiplied += math.isqrt(math.prod(map(_numbers, tensors)))
    return convolved > multiplied


def _numbers(tensor: Any) -> int:
    return tensor.shape.num_elements() or 0


def _is_plain(convolution: Any) -> bool:
    image, kernel = (tensor.shape for tensor in convolution.inputs)
    _, down, right, _ = convolution.get_attr("strides")
    return (
        convolution.get_attr("data_format") == b"NHWC"
        and down == right  # else TensorFlow 2.21 returns garbage for single channels on some CPUs
        and set(convolution.get_attr("dilations")) == {1}
        and image[-1] == kernel[-2]  # not in groups
    )
