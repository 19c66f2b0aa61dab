"""How much memory an example takes, and how many are best handled at a time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

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


@dataclasses.dataclass(frozen=True)
class ExampleMemory:
    """What an example takes in memory while its gradient is computed and clipped.

    Attributes:
      activations: Bytes that the forward and backward passes keep.
      norms: Bytes that the norm of a weight takes beside them, for the weight that takes most.
      kept: Ids of the weights whose per-example gradients stay in memory for the sum.
      for_users: Ids of those whose gradients are formed only for the sums of users.
    """

    activations: int = 0
    norms: int = 0
    kept: frozenset[int] = frozenset()
    for_users: frozenset[int] = frozenset()

    def in_bytes(self, sizes: Mapping[int, int], examples_per_user: int, whole: bool) -> int:
        """Returns all that an example takes.

        Examples that are clipped together have their positions laid end to end, and Gram matrices
        grow with the square of these. Or their gradients are added up: those are there twice
        before, in the order of their computation and in the weight's.

        Args:
          sizes: Bytes of a gradient of every trainable weight, by its id.
          examples_per_user: Examples that are clipped together.
          whole: Whether the whole model is mapped, which forms the gradients of all weights.
        """
        explicit = sum(size for key, size in sizes.items() if whole or key in self.kept)
        if examples_per_user > 1 and not whole:
            formed = [size for key, size in sizes.items() if key in self.for_users]
            explicit += sum(formed) // examples_per_user + 2 * max(formed, default=0)
        return self.activations + self.norms * examples_per_user + explicit

    @classmethod
    def of_terms(cls, uses: Mapping[int, list[Term]], mapped: Iterable[int], graph: Any) -> Self:
        """Returns what norms and sums take; no activations yet.

        Args:
          uses: The terms of every weight by its id.
          mapped: Ids of weights whose gradients are formed by mapping.
          graph: The ``tf.Graph`` that the terms belong to.
        """
        with graph.as_default():
            merged = {weight: merge(terms) for weight, terms in uses.items()}
            kept = {
                weight
                for weight, terms in uses.items()
                if any(map(_keeps_gradients, (*terms, merged[weight])))
            }
            norms = 4 * max((term.norm_numbers() for term in merged.values()), default=0)
        convolutions = {
            weight
            for weight, terms in uses.items()
            if any(isinstance(term, ConvolutionTerm) for term in terms)
        }
        kept.update(mapped)
        return cls(0, norms, frozenset(kept), frozenset(convolutions - kept))


def activation_bytes(fewer: Any, more: Any) -> int:
    """Returns what one example keeps until clipping is done, in bytes.

    An estimate from above: what is needed only for a while, such as gradients of attention
    weights, counts as well.

    Args:
      fewer: A ``tf.Graph`` of the model's forward pass.
      more: The same with one example more: what does not grow, such as weights, belongs to none.
    """
    return _kept(more) - _kept(fewer)


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
