"""Dense: outputs = activation(inputs @ kernel + bias), with LoRA or without."""

import keras
import tensorflow as tf

from tfdp.clipping.rules.registry import (
    as_positions,
    at_least_float32,
    register_rule,
    replaced,
    unbroadcast,
)
from tfdp.clipping.terms import ExplicitTerm, MatMulTerm


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


def lora_factors(layer: keras.layers.Layer, name: str) -> tuple[tf.Tensor, tf.Tensor, float]:
    """Returns (a, b, scale): the layer adds ``scale * a @ b`` to its frozen weight."""
    a, b = (
        at_least_float32(keras.ops.convert_to_tensor(getattr(layer, f"lora_{name}_{factor}")))
        for factor in "ab"
    )
    return a, b, layer.lora_alpha / layer.lora_rank
