"""EinsumDense: outputs = activation(einsum(equation, inputs, kernel) + bias)."""

from __future__ import annotations

import math
import string

import keras
import tensorflow as tf

from tfdp.clipping.rules.registry import at_least_float32, register_rule, replaced, unbroadcast
from tfdp.clipping.terms import ExplicitTerm, MatMulTerm, Term


@register_rule(keras.layers.EinsumDense)
def einsum_dense_rule(layer, call, tap, inputs, **kwargs):
    labels = _labels(layer.equation, inputs.shape.rank)
    if not _batch_leads(*labels):  # the batch axis is moved or contracted: no rule
        return call(inputs, **kwargs)

    def terms(gradient):
        yield layer._kernel, _kernel_term(*labels, layer._kernel.shape, inputs, gradient)
        if layer.bias is not None:
            yield layer.bias, ExplicitTerm(unbroadcast(gradient, layer.bias.shape))

    activation = layer.activation
    with replaced(layer, "activation", lambda z: activation(tap(z, terms))):
        return call(inputs, **kwargs)


def _labels(equation: str, input_rank: int) -> tuple[str, str, str]:
    """Splits the equation into (inputs, kernel, outputs), an ellipsis spelt out."""
    left, outputs = equation.replace(" ", "").split("->")
    inputs, kernel = left.split(",")
    unused = [letter for letter in string.ascii_letters if letter not in equation]
    spelt = "".join(unused[: input_rank - len(inputs.replace("...", ""))])
    return tuple(part.replace("...", spelt) for part in (inputs, kernel, outputs))


def _batch_leads(inputs: str, kernel: str, outputs: str) -> bool:
    batch = inputs[0]
    return outputs[0] == batch and batch not in kernel


def _kernel_term(
    inputs: str, kernel: str, outputs: str, shape: tuple[int, ...], x: tf.Tensor, grad: tf.Tensor
) -> Term:
    x, grad = at_least_float32(x), at_least_float32(grad)
    contracted = "".join(c for c in kernel if c in inputs and c not in outputs)
    produced = "".join(c for c in kernel if c in outputs and c not in inputs)
    positions = "".join(c for c in outputs[1:] if c not in kernel)
    plain = set(inputs) == set(inputs[0] + positions + contracted)
    if plain and kernel == contracted + produced:
        rows = _matrix(x, inputs, positions, contracted)
        return MatMulTerm(rows, _matrix(grad, outputs, positions, produced), tuple(shape))
    if plain and kernel == produced + contracted:
        columns = _matrix(grad, outputs, positions, produced)
        return MatMulTerm(columns, _matrix(x, inputs, positions, contracted), tuple(shape))
    # Weights that are neither one matrix nor its transpose, such as one matrix per head.
    return ExplicitTerm(tf.einsum(f"{inputs},{outputs}->{inputs[0]}{kernel}", x, grad))


def _matrix(tensor: tf.Tensor, labels: str, positions: str, features: str) -> tf.Tensor:
    """Orders and groups the axes as [B, positions, features]."""
    order = labels[0] + positions + features
    tensor = tf.transpose(tensor, [labels.index(label) for label in order])
    sizes = dict(zip(order, tensor.shape, strict=True))
    return tf.reshape(
        tensor,
        [-1, math.prod(sizes[c] for c in positions), math.prod(sizes[c] for c in features)],
    )
