"""LSTM, GRU and SimpleRNN: products with the inputs outside of the loop, tapped for all steps."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from tfdp.clipping.rules.registry import at_least_float32, register_rule, replaced
from tfdp.clipping.terms import ExplicitTerm, MatMulTerm

# A step: (cell, product of the inputs, product of the state, states) -> (outputs, states).


def _lstm_step(cell, own, recurrent, states):
    gates = ops.split(own + recurrent, 4, axis=1)
    carry, output = cell._compute_carry_and_output_fused(gates, states[1])
    hidden = output * cell.activation(carry)
    return hidden, [hidden, carry]


def _gru_step(cell, own, recurrent, states):
    own_z, own_r, own_h = ops.split(own, 3, axis=-1)
    recurrent_z, recurrent_r, recurrent_h = ops.split(recurrent, 3, axis=-1)
    update = cell.recurrent_activation(own_z + recurrent_z)
    reset = cell.recurrent_activation(own_r + recurrent_r)
    candidate = cell.activation(own_h + reset * recurrent_h)
    hidden = update * states[0] + (1 - update) * candidate
    return hidden, [hidden]


def _simple_step(cell, own, recurrent, states):
    hidden = cell.activation(own + recurrent)
    return hidden, [hidden]


@register_rule(keras.layers.LSTM)
def lstm_rule(layer, call, tap, sequences, **kwargs):
    return _recurrent(layer, call, tap, _lstm_step, sequences, **kwargs)


@register_rule(keras.layers.GRU)
def gru_rule(layer, call, tap, sequences, **kwargs):
    return _recurrent(layer, call, tap, _gru_step, sequences, **kwargs)


@register_rule(keras.layers.SimpleRNN)
def simple_rnn_rule(layer, call, tap, sequences, **kwargs):
    return _recurrent(layer, call, tap, _simple_step, sequences, **kwargs)


def _recurrent(layer, call, tap, step, sequences, initial_state=None, mask=None, **kwargs):
    def loop(sequences, initial_state, mask, training=False):
        return _loop(layer, tap, step, sequences, keras.tree.flatten(initial_state), mask)

    given = {"initial_state": initial_state, "mask": mask, **kwargs}
    if not _has_rule(layer.cell, layer, initial_state, mask):
        return call(sequences, **given)
    with replaced(layer, "inner_loop", loop):
        return call(sequences, **given)


def _has_rule(cell: Any, layer: Any, initial_state: Any, mask: Any) -> bool:
    plain = not (cell.dropout or cell.recurrent_dropout or layer.stateful)
    # Before the first step that is not masked, the outputs do not show the state.
    known_states = initial_state is None or mask is None
    return plain and known_states and getattr(cell, "reset_after", True)


def _loop(layer, tap, step, sequences, initial_states, mask):
    cell = layer.cell
    mask = mask[0] if isinstance(mask, list | tuple) else mask
    own = ops.matmul(sequences, cell.kernel)
    separate = getattr(cell, "reset_after", False)  # GRU: one bias for either product
    recurrent_bias = None
    if cell.use_bias:
        own_bias = cell.bias
        if separate:
            own_bias, recurrent_bias = ops.unstack(cell.bias, 2)
        own = own + own_bias
    # Zeros that stand for the products with the state: their gradients are these products'.
    recurrent = tf.zeros_like(own) if separate else own

    def one_step(inputs, states):
        product = ops.matmul(states[0], cell.recurrent_kernel)
        if separate:
            inputs, zeros = inputs
            product = product + zeros
            if recurrent_bias is not None:
                product = product + recurrent_bias
        return step(cell, inputs, product, states)

    def own_terms(gradient):
        x, d = at_least_float32(sequences), at_least_float32(gradient)
        yield cell.kernel, MatMulTerm(x, d, tuple(cell.kernel.shape))
        yield from _bias_term(cell, d, row=0 if separate else None)
        if not separate:
            yield cell.recurrent_kernel, state_term(d)

    def recurrent_terms(gradient):
        d = at_least_float32(gradient)
        yield cell.recurrent_kernel, state_term(d)
        yield from _bias_term(cell, d, row=1)

    def state_term(d):
        before = tf.concat([initial_states[0][:, tf.newaxis], outputs[:, :-1]], axis=1)
        before = tf.reverse(before, [1]) if layer.go_backwards else before
        return MatMulTerm(at_least_float32(before), d, tuple(cell.recurrent_kernel.shape))

    own = tap(own, own_terms)
    if separate:
        recurrent = tap(recurrent, recurrent_terms)
    _, outputs, states = keras.src.backend.rnn(
        one_step,
        (own, recurrent) if separate else own,
        initial_states,
        go_backwards=layer.go_backwards,
        mask=mask,
        unroll=layer.unroll,
        input_length=sequences.shape[1],
        return_all_outputs=True,
    )
    shown = outputs
    if mask is not None and layer.zero_output_for_mask:
        steps = tf.reverse(mask, [1]) if layer.go_backwards else mask
        shown = tf.where(steps[..., tf.newaxis], outputs, tf.zeros([], outputs.dtype))
    return shown[:, -1], shown, states


def _bias_term(cell: Any, gradient: tf.Tensor, row: int | None) -> Any:
    """The bias gets the gradient of its product; ``row`` is its row among a GRU's two."""
    if not cell.use_bias:
        return
    total = tf.reduce_sum(gradient, axis=1)
    if row is not None:
        total = tf.pad(total[:, tf.newaxis], [(0, 0), (row, 1 - row), (0, 0)])
    yield cell.bias, ExplicitTerm(total)
