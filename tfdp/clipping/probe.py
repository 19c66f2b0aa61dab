"""Numerical checks of a model on made-up examples, before it sees a private one.

They guard what cannot be read off a model's layers: whether code of the user's own lets one
example reach another's loss, and whether a rule of the user's own is right.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.clipping.examples import Batch
from tfdp.clipping.forward import Forward
from tfdp.clipping.layer_plan import Plan
from tfdp.clipping.made_up import made_up_pairs, with_faint_weights_raised
from tfdp.clipping.rejections import (
    CancellingError,
    UnsupportedLayerError,
    WrongRuleError,
    refuse_added_losses,
    refuse_rewritten_weights,
    warn_of_dropped_updates,
)
from tfdp.clipping.rules.registry import replaced
from tfdp.clipping.single_pass import single_pass, weighted_sums


def refuse_mixing(forward: Forward, batch: Batch, examples: Any = None) -> Batch:
    """Changes one example and looks at the losses and outputs of the others.

    Returns:
      The examples on which the model could be looked over.

    Args:
      forward: The model and its loss.
      batch: Gives structure, shapes and dtypes.
      examples: Public examples to use instead of made-up ones; see ``made_up_pairs``.

    Raises:
      UnsupportedLayerError: Names the layer through which examples mix, or says why that could
        not be found out. Or the model adds losses of its own.
    """
    reason, probed, values = "", None, _values(forward)
    for pair in made_up_pairs(batch, examples):
        found, other = (_run(forward, values, one) for one in pair)
        if not np.isfinite([found[0], other[0]]).all():
            reason = "their loss is not finite"
            continue
        _refuse_difference(forward, pair, found, other)
        if _first_differs(found, other):  # else nothing was seen
            return pair[0]
        probed = probed or pair[0]
    if probed is not None:  # a signal that fades out on its way hides nothing but itself
        warnings.warn(
            f"The outputs of {forward.model.name!r} are the same for all made-up examples: those "
            "that mix could go unnoticed. Give examples that are not private as public_examples.",
            stacklevel=2,
        )
        return probed
    source = "made-up examples" if examples is None else "public_examples"
    raise UnsupportedLayerError(
        f"It cannot be checked on {source} that the model {forward.model.name!r} keeps examples "
        f"apart: {reason}. Give examples of its kind that are not private, two rows or more, as "
        "public_examples=(x, y)."
    )


def refuse_wrong_rules(forward: Forward, examples: Batch, plan: Plan) -> None:
    """Compares an example's gradient by the layers' rules with plain differentiation.

    Raises:
      WrongRuleError: Names the weights whose gradients differ.
      CancellingError: Names the weights whose norms come out far too large.
    """
    if plan.whole:
        return  # nothing is left to rules
    batch = _two_rows(examples)  # everything on the way is kept until the end
    weights, state = values = _values(forward)
    expected, _ = _run(forward, values, batch)

    def compare():
        twice = not plan.differentiable_once
        found = single_pass(forward, weights, state, batch, plan, False, second_pass=twice)
        row = tf.one_hot(1, batch.mask.shape[0], dtype=weights[0].dtype)
        second_pass = found.second_pass or functools.partial(_gradients, forward, values, batch)
        exact = second_pass(row * forward.loss_scale)
        errors = [_errors(*pair, row) for pair in zip(found.terms, exact, strict=True)]
        return found.losses, tf.stack(errors)

    # Run by Python, a loop would count a layer's calls otherwise than in a graph.
    loops = any(mapping.loops for mapping in plan.mapped.values())
    losses, errors = tf.function(compare, autograph=False)() if loops else compare()

    share = 0.1 if forward.half_precision else 1e-3
    if not np.isfinite(errors).all():
        raise UnsupportedLayerError(
            f"The gradient of the model {forward.model.name!r} is not finite on made-up examples, "
            "so that the rules of its layers cannot be checked. Give examples of its kind that "
            "are not private, two rows or more, as public_examples=(x, y)."
        )
    sizes, off, above = errors.numpy().T
    limit = share * np.linalg.norm(sizes)

    def named(bad: np.ndarray) -> list[str]:
        return [v.path for v, one in zip(forward.trainable, bad, strict=True) if one]

    # Norms are raised by what rounding can hide: where gradients cancel they come out too large.
    cancelling = (above > 1000 * limit) & (off < 0.1 * above)
    wrong = (off > limit) | (above < -10 * limit) | (above > 1000 * limit)
    names = named(wrong & ~cancelling)
    random = any(mapping.random for mapping in plan.mapped.values())
    if not random and not np.allclose(losses, expected, rtol=share, atol=share):
        names.append("the outputs")
    _refuse_what_tensorflow_gets_wrong(forward, names)
    if names:
        raise WrongRuleError(
            f"The rules of the layers give other gradients than differentiation for "
            f"{', '.join(names)}. If you registered a rule for their layer, correct it; else use "
            'engine="vectorized".'
        )
    if cancelling.any():
        raise CancellingError(
            f"the uses of {', '.join(named(cancelling))} in one example cancel so far that their "
            'norm cannot be told from rounding; engine="vectorized" adds them up first'
        )


def _gradients(
    forward: Forward, values: tuple[list, list], batch: Batch, factors: tf.Tensor
) -> list[tf.Tensor]:
    """Returns sums of the gradients so weighted, from a forward pass of their own."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(values[0])
        losses, _ = _run(forward, values, batch)
    return weighted_sums(tape, losses, values[0], factors)


def _refuse_what_tensorflow_gets_wrong(forward: Forward, names: list[str]) -> None:
    """Raises if the gradients that differ are of layers that TensorFlow differentiates wrongly.

    On CPUs these are grouped convolutions of channels_first (TensorFlow 2.21), in their biases.
    """
    for layer in forward.layers:
        grouped = getattr(layer, "groups", 1) > 1
        first = getattr(layer, "data_format", None) == "channels_first"
        if grouped and first and {v.path for v in layer.trainable_variables} & set(names):
            raise UnsupportedLayerError(
                f"{type(layer).__name__} {layer.name!r}: TensorFlow's own gradient of grouped "
                "convolutions with data_format='channels_first' is wrong on CPUs, so that no rule "
                "can be checked by it. Use channels_last, or leave out the bias."
            )


def _two_rows(batch: Batch) -> Batch:
    def cut(leaf):
        return None if leaf is None else leaf[:2]

    x, y, sample_weight = keras.tree.map_structure(cut, (batch.x, batch.y, batch.sample_weight))
    return Batch(x, y, sample_weight, batch.mask[:2], batch.seed)


def _errors(term: Any, exact: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
    """Returns the gradient's norm, how far the term's sum is off, and how far its norm is."""
    exact = tf.cast(exact, row.dtype)
    size = tf.norm(exact)
    if term is None:
        return tf.stack([size, size, tf.zeros_like(size)])
    squares = term.squared_norm()
    total = tf.cast(term.weighted_sum(tf.cast(row, squares.dtype)), row.dtype)
    norm = tf.cast(tf.sqrt(squares[1]), row.dtype)
    return tf.stack([size, tf.norm(total - exact), norm - size])


def _run(forward: Forward, values: tuple[list, list], batch: Batch) -> tuple[tf.Tensor, Any]:
    """Returns (losses, outputs) for values of the variables."""
    weights, state = values
    mapping = forward.mapping(weights, state, batch.seed)
    with keras.StatelessScope(mapping, collect_losses=True) as scope:
        before = dict(scope.state_mapping)
        found = forward.losses(batch.x, batch.y, batch.sample_weight)
    refuse_added_losses(scope.losses)
    refuse_rewritten_weights(forward, before, scope.state_mapping)
    warn_of_dropped_updates(forward, before, scope.state_mapping)
    return found


def _values(forward: Forward) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    trainable, state = (
        [tf.convert_to_tensor(v.value) for v in variables]
        for variables in (forward.trainable, forward.state)
    )
    return with_faint_weights_raised(trainable), state


def _refuse_difference(forward: Forward, batches: tuple, found: tuple, other: tuple) -> None:
    if _others_agree(forward, _arrays(found), _arrays(other), batches[0].mask.shape[0]):
        return
    raise UnsupportedLayerError(
        f"One example changes another's loss through {_first_mixing_call(forward, batches)}, so "
        "that no example's gradient can be bounded. What is computed for an example may depend "
        "on this example alone."
    )


def _first_mixing_call(forward: Forward, batches: tuple[Batch, Batch]) -> str:
    """Names the first call whose outputs for the other examples change though its inputs do not."""
    rows, values = batches[0].mask.shape[0], _values(forward)
    runs: list[list] = []
    for batch in batches:
        calls: list = []
        with _calls_logged(forward.model, calls):
            _run(forward, values, batch)
        runs.append(calls)
    for (layer, inputs, outputs), (_, other_inputs, other_outputs) in zip(*runs, strict=True):
        same = _others_agree(forward, inputs, other_inputs, rows)
        if same and not _others_agree(forward, outputs, other_outputs, rows):
            return f"{type(layer).__name__} {layer.name!r}"
    return "the loss"


@contextlib.contextmanager
def _calls_logged(model: keras.Model, calls: list) -> Iterator[None]:
    """Within the block, appends (layer, inputs, outputs) for every call, innermost first."""

    def wrap(layer: keras.layers.Layer, call: Callable) -> Callable:
        @functools.wraps(call)
        def wrapped(*args, **kwargs):
            outputs = call(*args, **kwargs)
            calls.append((layer, _arrays((args, kwargs)), _arrays(outputs)))
            return outputs

        return wrapped

    with contextlib.ExitStack() as stack:
        for layer in model._flatten_layers():
            stack.enter_context(replaced(layer, "call", wrap(layer, layer.call)))
        yield


def _arrays(nested: Any) -> list[np.ndarray]:
    leaves = [leaf for leaf in keras.tree.flatten(nested) if tf.is_tensor(leaf)]
    floating = [leaf for leaf in leaves if leaf.dtype.is_floating and leaf.shape.rank]
    return [tf.cast(leaf, tf.float64).numpy() for leaf in floating]


def _others_agree(forward: Forward, a: list[np.ndarray], b: list[np.ndarray], rows: int) -> bool:
    """Whether all rows but the first are equal, up to rounding."""
    share = 1e-3 if forward.half_precision else 1e-5
    return all(
        np.allclose(one[1:], other[1:], rtol=share, atol=share * np.abs(one).max(initial=1e-6))
        for one, other in zip(a, b, strict=True)
        if len(one) == rows
    )


def _first_differs(found: tuple, other: tuple) -> bool:
    """Whether the first example's outputs changed with it; its loss, where no output has floats."""
    ours, theirs = (_arrays(outputs) or _arrays(losses) for losses, outputs in (found, other))
    return any((a[:1] != b[:1]).any() for a, b in zip(ours, theirs, strict=True))
