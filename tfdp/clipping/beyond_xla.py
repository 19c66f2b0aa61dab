"""What a model computes that XLA has no form of."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import kernels

from tfdp.clipping.devices import only_cpus

_TEXT = tf.string.as_datatype_enum


def beyond_xla(graph: Any) -> list[str]:
    """Returns the kinds of operations of a model that XLA cannot compile.

    These are code of Python's, text, look-ups in hash tables, and some of images; where a process
    asks XLA for text, it may even end.

    Args:
      graph: A ``tf.Graph`` of the model's forward pass.
    """
    definition = graph.as_graph_def()
    bodies = definition.library.function
    own = {body.signature.name for body in bodies}
    nodes = [*definition.node, *(node for body in bodies for node in body.node_def)]
    found = {"text" if _holds_text(node) else node.op for node in nodes}
    known = {"Placeholder", *own}  # an input of the graph, and calls of its functions
    return sorted(kind for kind in found - known if not _has_form(kind))


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
