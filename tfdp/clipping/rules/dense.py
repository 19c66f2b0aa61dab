"""Dense: outputs = activation(inputs @ kernel + bias)."""

import keras

from tfdp.clipping.rules.registry import (
    as_positions,
    register_rule,
    replaced,
    unbroadcast,
)
from tfdp.clipping.terms import ExplicitTerm, MatMulTerm


@register_rule(keras.layers.Dense)
def dense_rule(layer, call, tap, inputs, **kwargs):
    def terms(gradient):
        kernel = layer._kernel
        yield (
            kernel,
            MatMulTerm(as_positions(inputs), as_positions(gradient), tuple(kernel.shape)),
        )
        if layer.bias is not None:
            yield layer.bias, ExplicitTerm(unbroadcast(gradient, layer.bias.shape))

    # The gradient is needed before the activation: tap there.
    activation = layer.activation
    with replaced(layer, "activation", lambda z: activation(tap(z, terms))):
        return call(inputs, **kwargs)
