"""Numerical checks of a model on made-up examples, before it sees a private one.

They guard what cannot be read off a model's layers: whether code of the user's own lets one
example reach another's loss, and whether a rule of the user's own is right.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.clipping.errors import UnsupportedLayerError, WrongRuleError
from tfdp.clipping.forward import Batch, Forward
from tfdp.clipping.plan import Plan
from tfdp.clipping.rules.registry import replaced
from tfdp.clipping.single_pass import single_pass

_SEED = 20210607
_DRAWS = 3


def refuse_mixing(forward: Forward, batch: Batch) -> None:
    """Changes one example and looks at the losses and outputs of the others.

    Args:
      forward: The model and its loss.
      batch: Gives structure, shapes and dtypes.

    Raises:
      UnsupportedLayerError: Names the layer through which examples mix.
    """
    batches = _made_up(batch, _SEED), _made_up(batch, _SEED, first=_SEED + 1)
    losses, outputs = zip(*(_losses(forward, one) for one in batches), strict=True)
    if not all(np.isfinite(value).all() for value in losses):
        warnings.warn("The loss of made-up examples is not finite: examples that mix would go "
                      "unnoticed.", stacklevel=2)  # fmt: skip
        return
    rows = batches[0].mask.shape[0]
    if _others_agree(losses[0], losses[1], rows) and _others_agree(outputs[0], outputs[1], rows):
        return
    raise UnsupportedLayerError(
        f"One example changes another's loss through {_first_mixing_call(forward, batches)}, so "
        "that no example's gradient can be bounded. What is computed for an example may depend "
        "on this example alone."
    )


def refuse_wrong_rules(forward: Forward, batch: Batch, plan: Plan) -> None:
    """Compares an example's gradient by the layers' rules with plain differentiation.

    Raises:
      WrongRuleError: Names the weights whose gradients differ.
    """
    if plan.whole or any(mapping.random for mapping in plan.mapped.values()):
        return  # nothing is left to rules, or the two would draw different random numbers
    # The gradient jumps where a ReLU's input is zero but for rounding. A wrong rule is wrong for
    # other draws as well.
    wrong = _wrong(forward, _made_up(batch, _SEED), plan)
    for draw in range(1, _DRAWS):
        if wrong:
            wrong &= _wrong(forward, _made_up(batch, _SEED + draw), plan)
    if wrong:
        named = ", ".join(v.path for i, v in enumerate(forward.trainable) if i in wrong)
        raise WrongRuleError(
            f"The rules of the layers give other gradients than differentiation for {named}. If "
            "you registered a rule for their layer, correct it; else use "
            'engine="vectorized".'
        )


def _wrong(forward: Forward, made_up: Batch, plan: Plan) -> set[int]:
    """Returns which of the trainable weights have another gradient by the rules."""
    weights, state = _values(forward)
    row = tf.one_hot(1, made_up.mask.shape[0], dtype=weights[0].dtype)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(weights)
        with keras.StatelessScope(forward.mapping(weights, state, made_up.seed)):
            losses, _ = forward.losses(made_up.x, made_up.y, made_up.sample_weight)
        loss = losses[1] * tf.cast(forward.loss_scale, losses.dtype)
    exact = tape.gradient(loss, weights, unconnected_gradients="zero")
    found = single_pass(forward, weights, state, made_up, plan, compiled=False)

    exact = [tf.cast(tf.convert_to_tensor(g), row.dtype) for g in exact]
    size = tf.linalg.global_norm(exact)
    if not np.isfinite(size):
        return set()
    limit = (0.1 if forward.half_precision else 1e-3) * size
    pairs = zip(found.terms, exact, strict=True)
    return {i for i, (term, gradient) in enumerate(pairs) if _differs(term, row, gradient, limit)}


def _differs(term: Any, row: tf.Tensor, exact: tf.Tensor, limit: tf.Tensor) -> bool:
    if term is None:
        return bool(tf.norm(exact) > limit)
    squares = term.squared_norm()
    total = tf.cast(term.weighted_sum(tf.cast(row, squares.dtype)), exact.dtype)
    norm = tf.cast(tf.sqrt(squares[1]), exact.dtype)
    # Norms are raised by what rounding can hide: where gradients cancel they come out too large.
    above = norm - tf.norm(exact)
    return bool(tf.norm(total - exact) > limit or above < -10 * limit or above > 1000 * limit)


def _losses(forward: Forward, batch: Batch) -> tuple[np.ndarray, list[np.ndarray]]:
    with keras.StatelessScope(forward.mapping(*_values(forward), batch.seed)):
        losses, outputs = forward.losses(batch.x, batch.y, batch.sample_weight)
    return losses.numpy(), _arrays(outputs)


def _values(forward: Forward) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    trainable, state = (
        [tf.convert_to_tensor(v.value) for v in variables]
        for variables in (forward.trainable, forward.state)
    )
    return trainable, state


def _first_mixing_call(forward: Forward, batches: tuple[Batch, Batch]) -> str:
    """Names the first call whose outputs for the other examples change though its inputs do not."""
    rows = batches[0].mask.shape[0]
    runs: list[list] = []
    for batch in batches:
        calls: list = []
        with _calls_logged(forward.model, calls):
            _losses(forward, batch)
        runs.append(calls)
    for (layer, inputs, outputs), (_, other_inputs, other_outputs) in zip(*runs, strict=True):
        same = _others_agree(inputs, other_inputs, rows)
        if same and not _others_agree(outputs, other_outputs, rows):
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


def _others_agree(a: Any, b: Any, rows: int) -> bool:
    """Whether all rows but the first are equal, up to rounding."""
    pairs = zip(a, b, strict=True) if isinstance(a, list) else [(a, b)]
    return all(
        np.allclose(one[1:], other[1:], rtol=1e-3, atol=1e-3 * np.abs(one).max(initial=1e-6))
        for one, other in pairs
        if len(one) == rows
    )


def _made_up(batch: Batch, seed: int, first: int | None = None) -> Batch:
    """Draws rows of the batch's kind; ``first`` is another seed for the first row."""

    fields = (batch.x, batch.y, batch.sample_weight)
    taken = {size for leaf in keras.tree.flatten(fields) if leaf is not None for size in leaf.shape}
    rows = next(n for n in itertools.count(3) if n not in taken)  # no other axis has this size

    def draw(leaf):
        if leaf is None:
            return None
        shape = (rows, *leaf.shape[1:])
        values = _draw(leaf.dtype, shape, np.random.default_rng(seed))
        if first is not None:
            values[:1] = _draw(leaf.dtype, shape, np.random.default_rng(first))[:1]
        return tf.constant(values, leaf.dtype)

    x, y, sample_weight = keras.tree.map_structure(draw, fields)
    return Batch(x, y, sample_weight, tf.ones([rows], tf.bool), tf.constant([1, 2]))


def _draw(dtype: tf.DType, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    if dtype.is_floating:
        return generator.uniform(size=shape)
    if dtype in (tf.string, tf.bool):
        return np.full(shape, b"" if dtype == tf.string else True)
    return generator.integers(0, 2, shape)  # ids and classes that any vocabulary has
