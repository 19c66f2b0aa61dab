"""What compile and fit refuse, before any privacy is spent."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np

from tfdp.optimizers import PrivateOptimizer
from tfdp.privacy import PrivacyPlan


def check_compile(optimizer: Any, microbatch_size: int | None, seed: int | None) -> None:
    """Raises for an optimizer that is not private, or sizes out of range."""
    if not isinstance(optimizer, PrivateOptimizer):
        inner = getattr(optimizer, "inner_optimizer", None)
        hint = (
            "Do not wrap it: loss scaling reacts to private gradients."
            if isinstance(inner, PrivateOptimizer)
            else "Use tfdp.optimizers.DPSGD, DPAdam, DPAdamW or DPLAMB, with privacy=plan."
        )
        raise TypeError(
            f"optimizer={optimizer!r}: a private model needs a private optimizer. {hint}"
        )
    if microbatch_size is not None and not (
        isinstance(microbatch_size, int | np.integer) and microbatch_size > 0
    ):
        raise ValueError(f"microbatch_size={microbatch_size!r}: expected a positive integer.")
    if seed is not None and not isinstance(seed, int | np.integer):
        raise TypeError(f"seed={seed!r}: expected an integer, or None for fresh entropy.")


def check_fit(
    plan: PrivacyPlan | None,
    batch_size: int | None,
    validation_split: float,
    changed: bool,
) -> None:
    """Raises for arguments of fit that would break the contract with the plan."""
    if validation_split:
        raise ValueError(
            f"validation_split={validation_split}: it would take records out of the training "
            "data behind the plan's back. Split the data first, plan with the size of the "
            "training part, and pass validation_data."
        )
    if plan is not None and batch_size is not None and batch_size != plan.batch_size:
        raise ValueError(
            f"batch_size={batch_size}, but the plan has an expected batch size of "
            f"{plan.batch_size}. Leave batch_size out, or make another plan. (To bound memory, "
            "set microbatch_size in compile.)"
        )
    if changed:
        raise ValueError(
            "The set of trainable weights changed after compile (a layer was frozen, unfrozen "
            "or rebuilt). Compile again, so that clipping covers the weights that train."
        )


def plan_from_fit(
    optimizer: PrivateOptimizer,
    num_examples: int | None,
    batch_size: int | None,
    epochs: int | None,
    steps_per_epoch: int | None,
    delta: float | None,
) -> PrivacyPlan:
    """Returns the plan that l2_norm_clip, noise_multiplier and the arguments of fit make.

    Raises:
      ValueError: A public number is missing. The number of records is never taken from the
        data: it would reveal whether a record is in them.
    """
    if num_examples is None or batch_size is None or epochs is None:
        given = {"num_examples": num_examples, "batch_size": batch_size, "epochs": epochs}
        missing = [name for name, value in given.items() if value is None]
        raise ValueError(
            f"fit: {' and '.join(missing)} missing. The optimizer was given l2_norm_clip and "
            "noise_multiplier without a plan, so fit needs num_examples, batch_size and epochs "
            "(public numbers, not counted from the data). Or compile with "
            "privacy=tfdp.PrivacyPlan(...)."
        )
    per_epoch = steps_per_epoch or math.ceil(num_examples / batch_size)
    return PrivacyPlan(
        num_examples=num_examples,
        batch_size=batch_size,
        steps=epochs * per_epoch,
        clip_norm=optimizer.l2_norm_clip,
        noise_multiplier=optimizer.noise_multiplier,
        delta=delta,
    )


def class_to_sample_weight(class_weight: dict, y: Any, sample_weight: Any) -> np.ndarray:
    """Turns class weights into sample weights ``[N]``, which apply before clipping.

    Raises:
      ValueError: The targets are not integer classes, or a class has no weight.
    """
    targets = None if y is None or keras.tree.is_nested(y) else np.asarray(y)
    if targets is None or targets.dtype.kind not in "iu" or targets.size != len(targets):
        raise ValueError(
            "class_weight needs y as one array of integer classes. For other targets, compute "
            "the weight of every example and pass sample_weight."
        )
    classes, position = np.unique(targets.reshape(-1), return_inverse=True)
    absent = [int(c) for c in classes if int(c) not in class_weight]
    if absent:
        raise ValueError(f"class_weight has no weight for the classes {absent[:10]}.")
    weights = np.asarray([class_weight[int(c)] for c in classes], "float32")[position]
    return weights if sample_weight is None else weights * np.asarray(sample_weight, "float32")
