"""How many examples are best handled at a time, and how much memory an example takes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from tfdp.clipping.terms import ConvolutionTerm, Term, merge
from tfdp.clipping.xla import only_cpus

# What XLA keeps in memory: operands and results of these. The rest becomes part of them.
_KEPT = frozenset(
    (
        *("MatMul", "BatchMatMulV2", "Einsum", "Conv2D", "Conv3D", "DepthwiseConv2dNative"),
        *("Softmax", "GatherV2"),
    )
)
_VIEWS = frozenset(("Reshape", "Identity", "ExpandDims", "Squeeze"))

_CHOICES = 200  # sizes that are compared, of either kind


class Device(NamedTuple):
    """What one kind of device asks of a microbatch.

    Attributes:
      limit: Bytes that its examples may take.
      overhead: What beginning another one and adding up its sums costs, in bytes of examples whose
        handling takes as long.
    """

    limit: int
    overhead: int


# On two cores of a CPU, microbatches of 14 to 15 MB took twice as long an example as large ones,
# for captioners of 0.3 and 6 million weights and a language model of 10 million. Above some
# hundred MB an example takes up to a tenth longer: its intermediates have left the caches when the
# sums are formed. Accelerators are hundreds of times as fast on examples, but not on what comes
# beside them.
_CPU = Device(limit=2**30, overhead=2**24)
_ACCELERATOR = Device(limit=2**32, overhead=2**29)


def best_microbatch_size(
    example_bytes: int, counts: np.ndarray, probabilities: np.ndarray, replicas: int = 1
) -> int:
    """Returns the size of microbatches that is expected to take least time within the memory.

    Microbatches have one static shape, so the last one of a step is filled up with padding, which
    takes as long as examples do: many small ones waste less on it, but each has its own overhead.

    Args:
      example_bytes: What one example takes.
      counts: ``[K]`` integers: the numbers of examples that a step may have.
      probabilities: ``[K]``: how likely each of them is.
      replicas: How many handle the microbatches of a step side by side.
    """
    device = _CPU if only_cpus() else _ACCELERATOR
    fit = max(1, device.limit // max(example_bytes, 1))
    largest = max(1, math.ceil(counts.max() / replicas))
    even = np.ceil(largest / np.arange(1, _CHOICES))  # parts of a largest step without padding
    sizes = np.unique(np.rint([*np.geomspace(1, largest, _CHOICES), *even]).astype(np.int64))
    sizes = sizes[sizes <= fit]
    turns = [probabilities @ np.maximum(np.ceil(counts / (size * replicas)), 1) for size in sizes]
    overhead = device.overhead / max(example_bytes, 1)  # in examples
    return int(sizes[np.argmin(turns * (sizes + overhead))])


def activation_bytes(fewer: Any, more: Any) -> int:
    """Returns what one example keeps until clipping is done, in bytes.

    An estimate from above: what is needed only for a while, such as gradients of attention
    weights, counts as well.

    Args:
      fewer: A ``tf.Graph`` of the model's forward pass.
      more: The same with one example more: what does not grow, such as weights, belongs to none.
    """
    return _kept(more) - _kept(fewer)


def norm_bytes(uses: Iterable[list[Term]], graph: Any) -> int:
    """Returns what an example takes while a norm is formed, of the weight whose norm takes most.

    Args:
      uses: The terms of every weight.
      graph: The ``tf.Graph`` that they belong to.
    """
    with graph.as_default():
        return 4 * max((merge(terms).norm_numbers() for terms in uses), default=0)


def keeping_gradients(uses: dict[int, list[Term]], graph: Any) -> set[int]:
    """Returns the weights whose per-example gradients stay in memory for the sum.

    Args:
      uses: The terms of every weight, by its id.
      graph: The ``tf.Graph`` that they belong to.
    """
    with graph.as_default():
        return {
            weight
            for weight, terms in uses.items()
            if any(map(_keeps_gradients, (*terms, merge(terms))))
        }


def forming_for_users(uses: dict[int, list[Term]]) -> set[int]:
    """Returns the weights whose gradients are formed only for the sums of users."""
    return {
        weight
        for weight, terms in uses.items()
        if any(isinstance(term, ConvolutionTerm) for term in terms)
    }


def _keeps_gradients(term: Term) -> bool:
    if isinstance(term, ConvolutionTerm):
        return term.method == "explicit"
    return term.forms_gradients


def _kept(graph: Any) -> int:
    sizes: dict[str, int] = {}
    for operation in graph.get_operations():
        if operation.type in _KEPT:
            for tensor in operation.inputs:
                seen = _viewed(tensor)
                sizes.setdefault(seen.name, _bytes(seen))
            for tensor in operation.outputs:
                sizes[tensor.name] = 2 * _bytes(tensor)  # with its gradient
    return sum(sizes.values())


def _viewed(tensor: Any) -> Any:
    """Returns the tensor that another one is but a view of."""
    while tensor.op.type in _VIEWS:
        tensor = tensor.op.inputs[0]
    return tensor


def _bytes(tensor: Any) -> int:
    return (tensor.shape.num_elements() or 0) * tensor.dtype.size
