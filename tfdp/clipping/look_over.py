"""From a model to the way that every call takes, with all that is refused before training."""

from __future__ import annotations

import warnings
from typing import Any

from tfdp.clipping.examples import Batch
from tfdp.clipping.forward import Forward
from tfdp.clipping.layer_plan import Plan
from tfdp.clipping.probe import refuse_mixing, refuse_wrong_rules
from tfdp.clipping.rejections import CancellingError, UnsupportedLayerError
from tfdp.clipping.survey import survey


def look_over(
    forward: Forward, batch: Batch, engine: str, compiled: bool, public_examples: Any
) -> Plan:
    """Looks a model over for inputs of one kind, on made-up examples.

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
    examples = refuse_mixing(forward, batch, public_examples)
    plan = survey(forward, batch)
    if plan.beyond_xla and compiled:
        warnings.warn(
            f"{forward.model.name!r} is not compiled by XLA, which has no form of "
            f"{plan.beyond_xla}.",
            stacklevel=2,
        )
    if engine == "two_pass" and plan.differentiable_once:
        raise UnsupportedLayerError(
            f"{forward.model.name!r} has code of Python's in it (tf.py_function, EagerPyFunc), of "
            'which TensorFlow gives one gradient for every forward pass: use engine="single_pass".'
        )
    if engine == "vectorized":
        return plan.as_whole("as asked for")
    _give_notice(plan, engine)
    try:
        refuse_wrong_rules(forward, examples, plan)
    except CancellingError as error:
        if engine != "auto":
            raise
        plan = plan.as_whole(str(error))
        _give_notice(plan, engine)
    return plan


def _give_notice(plan: Plan, engine: str) -> None:
    """Warns of what is mapped for lack of a rule.

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
        f"Exact but slower, mapped over examples for lack of a rule: {named}.", stacklevel=2
    )
