"""How much memory a row takes, as its forward and backward pass and its clipping go on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tfdp.clipping.terms import ConvolutionTerm, Term, formed, merge

# What XLA keeps in memory: operands and results of these. The rest becomes part of them.
_KEPT = frozenset(
    (
        *("MatMul", "BatchMatMulV2", "Einsum", "Conv2D", "Conv3D", "DepthwiseConv2dNative"),
        *("Softmax", "GatherV2"),
    )
)
_VIEWS = frozenset(("Reshape", "Identity", "ExpandDims", "Squeeze"))


def activation_bytes(fewer: Any, more: Any) -> int:
    """Returns what one row keeps until clipping is done, in bytes.

    An estimate from above: what is needed only for a while, such as gradients of attention
    weights, counts as well.

    Args:
      fewer: A ``tf.Graph`` of the model's forward pass.
      more: The same with one row more: what does not grow, such as weights, belongs to no row.
    """
    return _kept(more) - _kept(fewer)


def norm_bytes(uses: Iterable[list[Term]], graph: Any) -> int:
    """Returns what a row takes while a norm is formed, of the weight whose norm takes most.

    Args:
      uses: The terms of every weight.
      graph: The ``tf.Graph`` that they belong to.
    """
    with graph.as_default():
        return 4 * max((merge(terms).norm_numbers() for terms in uses), default=0)


def keeping_gradients(uses: dict[int, list[Term]], graph: Any) -> set[int]:
    """Returns the weights whose explicit gradient of every row stays in memory for the sum.

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


def forming_for_units(uses: dict[int, list[Term]]) -> set[int]:
    """Returns the weights whose gradients are formed only where rows are clipped together."""
    return {
        weight
        for weight, terms in uses.items()
        if any(isinstance(term, ConvolutionTerm) for term in terms)
    }


def _keeps_gradients(term: Term) -> bool:
    if isinstance(term, ConvolutionTerm):
        return term.way == "explicit"
    return formed(term)


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
