"""What the computation runs on: devices, what XLA can compile and had better not, float32."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.framework import kernels

_TEXT = tf.string.as_datatype_enum

# What XLA may have a form of, and none of its gradient.
_GRADIENTS = {
    "QuantizeAndDequantizeV4": "QuantizeAndDequantizeV4Grad",
    "ResizeNearestNeighbor": "ResizeNearestNeighborGrad",
}

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


def only_cpus() -> bool:
    """Whether there is nothing but CPUs."""
    return {device.device_type for device in tf.config.list_logical_devices()} == {"CPU"}


def require_float32_products() -> None:
    """Turns off TensorFloat-32 on GPUs and its like on TPUs, and says so.

    There TensorFlow rounds the factors of float32 products to 10 or 7 bits. A norm and the clipped
    sum that it bounds would then round apart, and products that cancel could pass the bound. The
    setting is TensorFlow's own for the whole process; half precision policies keep their speed.
    """
    settings = tf.config.experimental
    if not settings.tensor_float_32_execution_enabled():
        return
    if not any(tf.config.list_physical_devices(kind) for kind in ("GPU", "TPU")):
        return
    settings.enable_tensor_float_32_execution(False)
    warnings.warn(
        "TensorFloat-32 is turned off: per-example norms and clipped sums need float32 products. "
        'For fast products use keras.config.set_dtype_policy("mixed_bfloat16").',
        stacklevel=2,
    )


def beyond_xla(graph: Any, sources: Iterable[Any]) -> list[str]:
    """Returns the kinds of operations of a model and its gradient that XLA cannot compile.

    These are code of Python's, text, look-ups in hash tables, and some of images; where a process
    asks XLA for text, it may even end.

    Args:
      graph: A ``tf.Graph`` of the model's forward pass.
      sources: Its tensors on the way from which gradients are taken.
    """
    definition = graph.as_graph_def()
    bodies = definition.library.function
    own = {body.signature.name for body in bodies}
    nodes = [*definition.node, *(node for body in bodies for node in body.node_def)]
    found = {"text" if _holds_text(node) else node.op for node in nodes}
    known = {"Placeholder", *own}  # an input of the graph, and calls of its functions
    if not _GRADIENTS.keys().isdisjoint(found):
        inside = {node.op for body in bodies for node in body.node_def}
        passed = (inside | _kinds_after(sources, graph)) & _GRADIENTS.keys()
        found |= {_GRADIENTS[kind] for kind in passed}
    return sorted(kind for kind in found - known if not _has_form(kind))


def _kinds_after(sources: Iterable[Any], graph: Any) -> set[str]:
    """Returns the kinds of operations that something of the sources reaches."""
    reached, kinds = {tensor.name for tensor in sources}, set()
    for operation in graph.get_operations():
        if any(tensor.name in reached for tensor in operation.inputs):
            reached |= {tensor.name for tensor in operation.outputs}
            kinds.add(operation.type)
    return kinds


def _holds_text(node: Any) -> bool:
    return any(_TEXT in (value.type, *value.list.type) for value in node.attr.values())


@functools.cache
def _has_form(kind: str) -> bool:
    _compile_something()
    device = "XLA_CPU_JIT" if only_cpus() else "XLA_GPU_JIT"
    registered = kernels.get_registered_kernels_for_op(kind).kernel
    return any(kernel.device_type == device for kernel in registered)


@functools.cache
def _compile_something() -> None:
    """XLA registers its forms when it compiles for the first time."""
    tf.function(tf.identity, jit_compile=True)(tf.zeros([]))


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
