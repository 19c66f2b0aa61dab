"""The work that a step cannot do without: multiplications and bytes of its products."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import tensorflow as tf


class Work(NamedTuple):
    """Of all matrix products and convolutions of a graph, those in its functions included.

    Attributes:
      flops: Floating-point operations, two for a multiplication and an addition.
      bytes: What the products read and write, if nothing stays in a cache between them.
      whole: Whether it is all; bodies of loops are counted once, whatever their number of turns.
    """

    flops: float
    bytes: float
    whole: bool


def work(graph: Any) -> Work:
    """Counts the products of a traced ``tf.Graph`` whose shapes are static."""
    flops = moved = 0.0
    whole = True
    for operation in _needed(graph):
        product = _PRODUCTS.get(operation.type)
        if product:
            flops += product(operation)
            tensors = [*operation.inputs, *operation.outputs]
            moved += sum(t.shape.num_elements() * t.dtype.size for t in tensors)
        whole &= operation.type not in ("While", "StatelessWhile")
        for name in _called(operation):
            inner = work(graph._get_function(name).graph)
            flops, moved, whole = flops + inner.flops, moved + inner.bytes, whole & inner.whole
    return Work(flops, moved, whole)


def _needed(graph: Any) -> list[Any]:
    """The operations that the outputs depend on: what is traced besides is never run."""
    found: dict[str, Any] = {}
    left = [tensor.op for tensor in graph.outputs]
    while left:
        operation = left.pop()
        if operation.name not in found:
            found[operation.name] = operation
            left += [tensor.op for tensor in operation.inputs]
    return list(found.values())


def _called(operation: Any) -> list[str]:
    if operation.type in ("PartitionedCall", "StatefulPartitionedCall"):
        return [operation.get_attr("f").name]
    if operation.type in ("If", "StatelessIf"):  # the branch of ordinary examples
        return [operation.get_attr("then_branch").name]
    if operation.type in ("While", "StatelessWhile"):
        return [operation.get_attr("body").name]
    return []


def _matmul(operation: Any) -> float:
    first = operation.inputs[0].shape
    batched = operation.type.startswith("Batch")
    transposed = operation.get_attr("adj_x" if batched else "transpose_a")
    return 2.0 * operation.outputs[0].shape.num_elements() * first[-2 if transposed else -1]


def _convolution(outputs: tf.TensorShape, kernel: tf.TensorShape) -> float:
    return 2.0 * outputs.num_elements() * math.prod(kernel[:-1])


_PRODUCTS = {
    "MatMul": _matmul,
    "BatchMatMulV2": _matmul,
    "Conv2D": lambda op: _convolution(op.outputs[0].shape, op.inputs[1].shape),
    "Conv2DBackpropInput": lambda op: _convolution(op.inputs[2].shape, op.inputs[1].shape),
    "Conv2DBackpropFilter": lambda op: _convolution(op.inputs[2].shape, op.outputs[0].shape),
}
