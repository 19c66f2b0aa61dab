"""What compile and fit refuse, before any privacy is spent."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from tfdp.checks import not_negative, positive_int, whole
from tfdp.checks import seed as check_seed
from tfdp.data import ExampleSource
from tfdp.optimizers import PrivateOptimizer
from tfdp.privacy import Ledger, PrivacyPlan
from tfdp.privacy.spenders import spending_elsewhere
from tfdp.sampling import UserExamples
from tfdp.training import arguments

if TYPE_CHECKING:
    from tfdp.training.state import PrivateState


def check_compile(
    optimizer: Any, microbatch_size: int | None, seed: int | None, ledger: Any
) -> None:
    """Raises for an optimizer that is not private, or arguments out of range."""
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
    arguments.check_counts(microbatch_size=microbatch_size)
    if ledger is not None and not isinstance(ledger, Ledger):
        raise TypeError(
            f"ledger={ledger!r}: expected a tfdp.privacy.Ledger, such as Ledger({ledger!r}), or "
            "None for one in memory."
        )
    check_seed(seed)
    if seed is not None and optimizer.privacy is not None and optimizer.privacy.secure:
        raise ValueError(
            f"seed={seed}: a plan with secure=True draws its noise from the operating system's "
            "entropy only. Leave seed out, or plan with secure=False for a test."
        )


def updates_at_once(steps: Any) -> int:
    """Returns ``steps_per_execution``; raises for what is no number of steps."""
    return whole(
        "steps_per_execution",
        steps,
        least=1,
        why="so many steps are made between two calls of the callbacks, each a private one",
    )


def check_overrides(model_class: type) -> None:
    """Raises for a model with a training step or loss of its own, which would not be used."""
    for name in ("train_step", "compute_loss"):
        if getattr(model_class, name) is not getattr(keras.Model, name):
            raise ValueError(
                f"{model_class.__name__} overrides {name}, which private training does not run: "
                "it clips the compiled loss by example. Give the loss to compile(), as a function "
                "with one value per example."
            )


def check_strategy(model: keras.Model) -> None:
    """Raises for a model whose weights lie outside the strategy that it would train under."""
    strategy = model.distribute_strategy
    if strategy.num_replicas_in_sync == 1:
        return
    outside = [
        v.path for v in model.variables if not strategy.extended.variable_created_in_scope(v.value)
    ]
    if outside:
        raise ValueError(
            f"{len(outside)} variables of {model.name!r}, such as {outside[0]}, were made outside "
            f"the scope of the {type(strategy).__name__} that compile or fit was called in, so "
            "its replicas cannot share them. Build or load the model inside `with "
            "strategy.scope():`, like the optimizer."
        )


def check_unchanged(model: keras.Model, state: PrivateState) -> None:
    """Raises if weights or optimizer are not those that were compiled."""
    check_strategy(model)
    check_trainable(model, state)
    optimizer = model.optimizer
    if optimizer is not state.optimizer:
        raise ValueError(
            "The optimizer was replaced after compile, so the noise would not be the one that is "
            "accounted for. Compile again with the new optimizer."
        )
    if optimizer.ledger is not state.ledger:
        raise ValueError(
            "The optimizer's ledger was replaced after compile. Compile again with ledger=ledger: "
            "what has been spent is then taken over."
        )
    for name in ("gradient_accumulation_steps", "loss_scale_factor"):
        if getattr(optimizer, name) is not None:
            raise ValueError(
                f"The optimizer's {name} was set to {getattr(optimizer, name)} after compile: not "
                "available, since every step of fit is one private step. Set it back to None."
            )


def check_trainable(model: keras.Model, state: PrivateState) -> None:
    """Raises if other weights are trainable than those that are clipped and noised."""
    if state.trainable and state.trainable != [id(v) for v in model.trainable_variables]:
        raise ValueError(
            "The set of trainable weights changed after compile (a layer was frozen, unfrozen "
            "or rebuilt). Compile again, so that clipping covers the weights that train."
        )


def sharing_note(model: keras.Model, ledger: Ledger) -> list[str]:
    """Says for a report which steps of other models its weights hold, if there are any."""
    shared = [variable.path for variable, _ in spending_elsewhere(model.variables, ledger)]
    if not shared:
        return []
    some = f"{', '.join(shared[:3])}{', ...' if len(shared) > 3 else ''}"
    return [
        f"another private model has trained weights of this one ({some}), and its steps are in "
        "another ledger: epsilon leaves them out; tfdp.privacy.compose adds both up"
    ]


def check_sharing(model: keras.Model, ledger: Ledger) -> None:
    """Raises if another private model has trained these weights, with a ledger of its own."""
    for note in sharing_note(model, ledger):
        raise ValueError(
            f"fit: {note}. Compile this model again, which takes them over, or compile both with "
            "one ledger: compile(..., ledger=ledger)."
        )


def warn_of_callbacks(callbacks: Any) -> None:
    """Warns of callbacks through which metrics of private data steer the training."""
    steering = (
        keras.callbacks.ReduceLROnPlateau,
        keras.callbacks.EarlyStopping,
    )
    for callback in keras.tree.flatten(callbacks or []):
        if isinstance(callback, steering) or getattr(callback, "save_best_only", False):
            warnings.warn(
                f"{type(callback).__name__} steers the training by {callback.monitor!r}, or "
                "chooses weights by it. If that is computed from private records, the choice is "
                "not covered by the guarantee.",
                stacklevel=3,
            )


def check_fit(
    plan: PrivacyPlan | None,
    batch_size: int | None,
    num_examples: int | None,
    delta: float | None,
    validation_split: float,
    user_ids: Any = None,
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
    _check_unit(None if plan is None else plan.examples_per_user, user_ids)
    if plan is None:
        return
    for name, value in (("num_examples", num_examples), ("delta", delta)):
        if value is not None and value != getattr(plan, name):
            raise ValueError(
                f"{name}={value}, but the plan has {getattr(plan, name)}. Leave {name} out, or "
                "make another plan."
            )
    if plan.delta is None:
        raise ValueError(
            "The plan has no delta, so no epsilon could be stated after training: give the plan "
            "its delta, commonly below 1/N."
        )


def _check_unit(examples_per_user: int | None, user_ids: Any) -> None:
    """Raises unless plan and data agree on what is protected."""
    if user_ids is None and examples_per_user is not None:
        raise ValueError(
            f"The plan protects persons (examples_per_user={examples_per_user}), and fit does not "
            "know whose the records are: pass user_ids, or plan without examples_per_user."
        )
    if user_ids is not None and examples_per_user is None:
        raise ValueError(
            "user_ids: the plan protects single records. To protect the persons behind them, "
            "plan with examples_per_user, and with num_examples and batch_size counting persons."
        )


def units_of(plan: PrivacyPlan | None, source: ExampleSource, user_ids: Any) -> UserExamples | None:
    """Returns whose the records are, where the plan protects persons."""
    if plan is None or plan.examples_per_user is None:
        return None
    units = UserExamples(user_ids, plan.examples_per_user)
    if units.num_records != len(source):
        raise ValueError(
            f"user_ids holds {units.num_records} ids for {len(source)} records: give one a record."
        )
    return units


def plan_from_fit(
    optimizer: PrivateOptimizer,
    num_examples: int | None,
    batch_size: int | None,
    epochs: int | None,
    steps_per_epoch: int | None,
    delta: float | None,
    spent: int,
) -> PrivacyPlan:
    """Returns the plan that l2_norm_clip, noise_multiplier and the arguments of fit make.

    Raises:
      ValueError: A public number is missing. The number of records is never taken from the
        data: it would reveal whether a record is in them.
    """
    if num_examples is None or batch_size is None or epochs is None or delta is None:
        given = {
            "num_examples": num_examples,
            "batch_size": batch_size,
            "epochs": epochs,
            "delta": delta,
        }
        missing = [name for name, value in given.items() if value is None]
        raise ValueError(
            f"fit: {' and '.join(missing)} missing. The optimizer was given l2_norm_clip and "
            "noise_multiplier without a plan, so fit needs num_examples, batch_size, epochs and "
            "delta (public numbers, not counted from the data). Or compile with "
            "privacy=tfdp.PrivacyPlan(...)."
        )
    for name, value in (("num_examples", num_examples), ("batch_size", batch_size)):
        positive_int(name, value)
    per_epoch = steps_per_epoch or math.ceil(num_examples / batch_size)
    return PrivacyPlan(
        num_examples=num_examples,
        batch_size=batch_size,
        steps=spent + max(1, epochs) * per_epoch,
        clip_norm=optimizer.l2_norm_clip,
        noise_multiplier=optimizer.noise_multiplier,
        delta=delta,
    )


def class_to_sample_weight(class_weight: dict, y: Any, sample_weight: Any) -> np.ndarray:
    """Turns class weights into sample weights ``[N]``, which apply before clipping.

    Raises:
      TypeError: It is not a dict of numbers.
      ValueError: The targets are not integer classes, or a class has no weight.
    """
    if not isinstance(class_weight, dict):
        raise TypeError(f"class_weight={class_weight!r}: expected a dict from class to weight.")
    for label, weight in class_weight.items():
        not_negative(f"class_weight[{label!r}]", weight)
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
    if sample_weight is None:
        return weights
    given = np.asarray(sample_weight, "float32")
    return weights.reshape(-1, *[1] * (given.ndim - 1)) * given
