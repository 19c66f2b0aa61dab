"""What a model computes that XLA has no form of."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import kernels

from tfdp.clipping.devices import only_cpus

_TEXT = tf.string.as_datatype_enum

# What XLA may have a form of, and none of its gradient.
_GRADIENTS = {
    "QuantizeAndDequantizeV4": "QuantizeAndDequantizeV4Grad",
    "ResizeNearestNeighbor": "ResizeNearestNeighborGrad",
}


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
