"""The model check, before training: no example affects another, and the rules are right."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.clipping.examples import Batch
from tfdp.clipping.forward import Forward
from tfdp.clipping.layer_plan import Plan
from tfdp.clipping.mixing import losses_and_outputs, reject_mixing
from tfdp.clipping.rejections import CancellingError, UnsupportedLayerError, WrongRuleError
from tfdp.clipping.single_pass import single_pass, weighted_sums
from tfdp.clipping.survey import survey
from tfdp.clipping.synthetic_inputs import values_of


def check_model(
    forward: Forward, batch: Batch, engine: str, compiled: bool, public_examples: Any
) -> Plan:
    """Checks a model for inputs of one kind, on synthetic inputs, and plans how it is clipped.

    Args:
      forward: The model and its loss.
      batch: Its structure, shapes and dtypes count, not its values.
      engine: As for ``ClippedGradient``.
      compiled: Whether XLA may compile the model.
      public_examples: As for ``ClippedGradient``.

    Raises:
      UnsupportedLayerError: One example reaches another's loss, or a layer has no rule and the
        engine asked for needs one.
      WrongRuleError: The rule of a layer is wrong.
    """
    examples = reject_mixing(forward, batch, public_examples)
    plan = survey(forward, batch)
    if plan.beyond_xla and compiled:
        warnings.warn(
            f"{forward.model.name!r} is not compiled by XLA, which does not support "
            f"{plan.beyond_xla}.",
            stacklevel=2,
        )
    if engine == "two_pass" and plan.differentiable_once:
        raise UnsupportedLayerError(
            f"{forward.model.name!r} runs Python code (tf.py_function, EagerPyFunc), which "
            'TensorFlow differentiates only once per forward pass: use engine="single_pass".'
        )
    if engine == "vectorized":
        return plan.as_whole("as asked for")
    _warn_of_mapped_calls(plan, engine)
    try:
        _reject_wrong_rules(forward, examples, plan)
    except CancellingError as error:
        if engine != "auto":
            raise
        plan = plan.as_whole(str(error))
        _warn_of_mapped_calls(plan, engine)
    return plan


def _warn_of_mapped_calls(plan: Plan, engine: str) -> None:
    """Warns of layers that are mapped over examples because they have no rule.

    Raises:
      UnsupportedLayerError: The engine maps nothing.
    """
    if not plan.whole and not plan.mapped:
        return
    named = "; ".join(sorted({mapping.notice for mapping in plan.mapped.values()}))
    if engine == "single_pass":
        raise UnsupportedLayerError(
            f'engine="single_pass" has no rule for: {named or plan.whole}. Register one with '
            'tfdp.clipping.register_rule, or use engine="auto".'
        )
    if plan.whole:
        named = f"the whole model ({plan.whole})"
    warnings.warn(
        f"No rule for {named}: mapped over examples, which is exact but slower.", stacklevel=2
    )


def _reject_wrong_rules(forward: Forward, examples: Batch, plan: Plan) -> None:
    """Compares an example's gradient by the layers' rules with plain differentiation.

    Raises:
      WrongRuleError: Names the weights whose gradients differ.
      CancellingError: Names the weights whose norms come out far too large.
    """
    if plan.whole:
        return  # nothing is left to rules
    batch = _two_examples(examples)  # everything on the way is kept until the end
    expected, _ = losses_and_outputs(forward, values_of(forward), batch)
    losses, errors = _compared(forward, batch, plan)
    share = 0.1 if forward.half_precision else 1e-3
    if not np.isfinite(errors).all():
        raise UnsupportedLayerError(
            f"The gradient of the model {forward.model.name!r} is not finite on synthetic inputs, "
            "so the rules of its layers cannot be checked. Give two or more examples that are not "
            "private, as public_examples=(x, y)."
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
    _reject_what_tensorflow_gets_wrong(forward, names)
    if names:
        raise WrongRuleError(
            f"The rules of the layers and differentiation give different gradients for "
            f"{', '.join(names)}. If you registered a rule for their layer, correct it; otherwise "
            'use engine="vectorized".'
        )
    if cancelling.any():
        raise CancellingError(
            f"the uses of {', '.join(named(cancelling))} in one example nearly cancel, so that the "
            'norm of their sum is lost in rounding; engine="vectorized" adds them up first'
        )


def _compared(forward: Forward, batch: Batch, plan: Plan) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the losses by the layers' rules, and the errors of every weight; see ``_errors``."""
    weights, state = values = values_of(forward)

    def compare():
        twice = not plan.differentiable_once
        found = single_pass(forward, weights, state, batch, plan, False, second_pass=twice)
        example = tf.one_hot(1, batch.mask.shape[0], dtype=weights[0].dtype)
        second_pass = found.second_pass or functools.partial(_gradients, forward, values, batch)
        exact = second_pass(example * forward.loss_scale)
        errors = [_errors(*pair, example) for pair in zip(found.terms, exact, strict=True)]
        return found.losses, tf.stack(errors)

    # Run by Python, a loop would count a layer's calls otherwise than in a graph.
    loops = any(mapping.loops for mapping in plan.mapped.values())
    return tf.function(compare, autograph=False)() if loops else compare()


def _gradients(
    forward: Forward, values: tuple[list, list], batch: Batch, factors: tf.Tensor
) -> list[tf.Tensor]:
    """Returns sums of the gradients so weighted, from a forward pass of their own."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(values[0])
        losses, _ = losses_and_outputs(forward, values, batch)
    return weighted_sums(tape, losses, values[0], factors)


def _reject_what_tensorflow_gets_wrong(forward: Forward, names: list[str]) -> None:
    """Raises if the gradients that differ are of layers that TensorFlow differentiates wrongly.

    On CPUs these are grouped convolutions of channels_first (TensorFlow 2.21), in their biases.
    """
    for layer in forward.layers:
        grouped = getattr(layer, "groups", 1) > 1
        first = getattr(layer, "data_format", None) == "channels_first"
        if grouped and first and {v.path for v in layer.trainable_variables} & set(names):
            raise UnsupportedLayerError(
                f"{type(layer).__name__} {layer.name!r}: TensorFlow's own gradient of grouped "
                "convolutions with data_format='channels_first' is wrong on CPUs, so no rule can "
                "be checked against it. Use channels_last, or leave out the bias."
            )


def _two_examples(batch: Batch) -> Batch:
    def cut(leaf):
        return None if leaf is None else leaf[:2]

    x, y, sample_weight = keras.tree.map_structure(cut, (batch.x, batch.y, batch.sample_weight))
    return Batch(x, y, sample_weight, batch.mask[:2], batch.seed)


def _errors(term: Any, exact: tf.Tensor, example: tf.Tensor) -> tf.Tensor:
    """Returns the gradient's norm, how far the term's sum is off, and how far its norm is."""
    exact = tf.cast(exact, example.dtype)
    size = tf.norm(exact)
    if term is None:
        return tf.stack([size, size, tf.zeros_like(size)])
    squares = term.squared_norm()
    total = tf.cast(term.weighted_sum(tf.cast(example, squares.dtype)), example.dtype)
    norm = tf.cast(tf.sqrt(squares[1]), example.dtype)
    return tf.stack([size, tf.norm(total - exact), norm - size])
