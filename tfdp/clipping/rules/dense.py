"""Dense and EinsumDense: outputs = activation(inputs * kernel + bias), with LoRA or without."""

from __future__ import annotations

import math
import string
from typing import NamedTuple

import keras
import tensorflow as tf

from tfdp.clipping.rules.registry import (
    Terms,
    as_positions,
    at_least_float32,
    lora_factors,
    register_rule,
    replaced,
    unbroadcast,
)
from tfdp.clipping.terms import ExplicitTerm, GroupedMatMulTerm, MatMulTerm, Term


@register_rule(keras.layers.Dense)
def dense_rule(layer, call, tap, inputs, **kwargs):
    lora = lora_factors(layer, "kernel") if layer.lora_enabled else None

    def terms(gradient):
        x, d = as_positions(inputs), as_positions(gradient)
        if lora is None:
            yield layer._kernel, MatMulTerm(x, d, tuple(layer._kernel.shape))
        else:  # kernel = constant + scale * a @ b
            a, b, scale = lora
            down = scale * tf.tensordot(d, tf.transpose(b), 1)
            up = scale * tf.tensordot(x, a, 1)
            yield layer.lora_kernel_a, MatMulTerm(x, down, tuple(a.shape))
            yield layer.lora_kernel_b, MatMulTerm(up, d, tuple(b.shape))
        if layer.bias is not None:
            yield layer.bias, ExplicitTerm(unbroadcast(gradient, layer.bias.shape))

    # The gradient is needed before the activation: tap there.
    activation = layer.activation
    with replaced(layer, "activation", lambda z: activation(tap(z, terms))):
        return call(inputs, **kwargs)


class Labels(NamedTuple):
    """The letters of an equation, an ellipsis spelt out."""

    inputs: str
    kernel: str
    outputs: str


@register_rule(keras.layers.EinsumDense)
def einsum_dense_rule(layer, call, tap, inputs, **kwargs):
    labels = _labels(layer.equation, inputs.shape.rank)
    lora = lora_factors(layer, "kernel") if layer.lora_enabled else None
    if not _batch_leads(labels) or (lora is not None and not _ends_in_outputs(labels)):
        return call(inputs, **kwargs)  # no rule: the survey finds another way

    def terms(gradient):
        x, d = at_least_float32(inputs), at_least_float32(gradient)
        if lora is None:
            yield layer._kernel, kernel_term(labels, tuple(layer._kernel.shape), x, d)
        else:
            yield from _lora_terms(layer, labels, lora, x, d)
        if layer.bias is not None:
            yield layer.bias, ExplicitTerm(unbroadcast(gradient, layer.bias.shape))

    activation = layer.activation
    with replaced(layer, "activation", lambda z: activation(tap(z, terms))):
        return call(inputs, **kwargs)


def kernel_term(labels: Labels, shape: tuple[int, ...], x: tf.Tensor, d: tf.Tensor) -> Term:
    """Returns the term of the kernel of ``outputs = einsum(inputs, kernel)``.

    Args:
      labels: The equation; both inputs and outputs start with the batch axis.
      shape: The kernel's shape.
      x: The inputs.
      d: The gradients of the outputs.
    """
    inputs, kernel, outputs = labels
    contracted = "".join(c for c in kernel if c in inputs and c not in outputs)
    produced = "".join(c for c in kernel if c in outputs and c not in inputs)
    shared = "".join(c for c in kernel if c in outputs and c in inputs)
    positions = "".join(c for c in outputs[1:] if c not in kernel)
    if set(inputs) != set(inputs[0] + shared + positions + contracted):
        # The layer sums its inputs over an axis that the kernel does not have.
        return ExplicitTerm(tf.einsum(f"{inputs},{outputs}->{inputs[0]}{kernel}", x, d))
    left = _grouped(x, inputs, shared, positions, contracted)
    right = _grouped(d, outputs, shared, positions, produced)
    if not shared and kernel == contracted + produced:
        return MatMulTerm(left[:, 0], right[:, 0], shape)
    if not shared and kernel == produced + contracted:
        return MatMulTerm(right[:, 0], left[:, 0], shape)
    blocks = shared + contracted + produced
    sizes = tuple(shape[kernel.index(c)] for c in blocks)
    return GroupedMatMulTerm(left, right, sizes, tuple(blocks.index(c) for c in kernel))


def _lora_terms(
    layer: keras.layers.Layer, labels: Labels, lora: tuple, x: tf.Tensor, d: tf.Tensor
) -> Terms:
    """kernel = constant + scale * a @ b: an einsum with a, then a product with b."""
    a, b, scale = lora
    inputs, kernel, outputs = labels
    last, rank = kernel[-1], _unused(inputs + kernel + outputs)[0]
    middle = outputs.replace(last, rank)
    down = scale * tf.einsum(f"{outputs},{rank}{last}->{middle}", d, b)
    first = Labels(inputs, kernel[:-1] + rank, middle)
    yield layer.lora_kernel_a, kernel_term(first, tuple(a.shape), x, down)
    up = scale * tf.einsum(f"{inputs},{kernel[:-1]}{rank}->{middle}", x, a)
    second = Labels(middle, rank + last, outputs)
    yield layer.lora_kernel_b, kernel_term(second, tuple(b.shape), up, d)


def _labels(equation: str, input_rank: int) -> Labels:
    left, outputs = equation.replace(" ", "").split("->")
    inputs, kernel = left.split(",")
    spelt = _unused(equation)[: input_rank - len(inputs.replace("...", ""))]
    return Labels(*(part.replace("...", spelt) for part in (inputs, kernel, outputs)))


def _unused(letters: str) -> str:
    return "".join(letter for letter in string.ascii_letters if letter not in letters)


def _batch_leads(labels: Labels) -> bool:
    batch = labels.inputs[0]
    return labels.outputs[0] == batch and batch not in labels.kernel


def _ends_in_outputs(labels: Labels) -> bool:
    last = labels.kernel[-1]
    return last in labels.outputs and last not in labels.inputs


def _grouped(
    tensor: tf.Tensor, labels: str, shared: str, positions: str, features: str
) -> tf.Tensor:
    """Orders and groups the axes as [B, shared, positions, features]."""
    order = labels[0] + shared + positions + features
    tensor = tf.transpose(tensor, [labels.index(label) for label in order])
    sizes = dict(zip(order, tensor.shape, strict=True))
    return tf.reshape(
        tensor, [-1, *(math.prod(sizes[c] for c in axes) for axes in (shared, positions, features))]
    )
