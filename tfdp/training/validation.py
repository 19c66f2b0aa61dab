"""What ``compile`` and ``fit`` reject before any privacy is spent, in the order of the checks."""

from __future__ import annotations

import numbers
import warnings
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp import checks
from tfdp.clipping.clipped_gradient import check_engine, checked_jit_compile
from tfdp.data import ExampleSource
from tfdp.optimizers import PrivateOptimizer
from tfdp.privacy import Ledger, PrivacyPlan
from tfdp.privacy.spenders import spending_elsewhere
from tfdp.sampling import UserExamples
from tfdp.training.compiled import Compiled

_CHECKPOINTS = "tfdp.training.CheckpointEvery, which keeps both"


# 1. compile: the arguments, then the model.


def check_compile(
    optimizer: Any, microbatch_size: Any, engine: Any, seed: Any, ledger: Any
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
    check_counts(microbatch_size=microbatch_size)
    if ledger is not None and not isinstance(ledger, Ledger):
        raise TypeError(
            f"ledger={ledger!r}: expected a tfdp.privacy.Ledger, such as Ledger({ledger!r}), or "
            "None for one in memory."
        )
    checks.seed(seed)
    if seed is not None and optimizer.privacy is not None and optimizer.privacy.secure:
        raise ValueError(
            f"seed={seed}: a plan with secure=True draws its noise from the operating system's "
            "entropy only. Leave seed out, or plan with secure=False for a test."
        )
    check_engine(engine)


def checked_keras_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns arguments of Keras's compile, with NumPy's numbers and flags as plain ones."""
    at_once = checks.whole(
        "steps_per_execution",
        arguments.get("steps_per_execution", 1),
        least=1,
        why="it is the number of private steps between two calls of the callbacks",
    )
    checked = {**arguments, "steps_per_execution": at_once}
    if checked.get("jit_compile") is not None:
        checked["jit_compile"] = checked_jit_compile(checked["jit_compile"])
    # Loss scaling reacts to private gradients; half precision is clipped in float32 anyway.
    return {**checked, "auto_scale_loss": False}


def check_overrides(model_class: type) -> None:
    """Raises for a model with a training step or loss of its own, which would not be used."""
    for name in ("train_step", "compute_loss"):
        if getattr(model_class, name) is not getattr(keras.Model, name):
            raise ValueError(
                f"{model_class.__name__} overrides {name}, which private training does not run: "
                "it clips the gradient of the compiled loss, example by example. Pass the loss to "
                "compile(), as a function that returns one value per example."
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
            f"{len(outside)} variables of {model.name!r}, such as {outside[0]}, were created "
            f"outside the scope of the {type(strategy).__name__} in which compile or fit was "
            "called, so its replicas cannot share them. Build or load the model inside `with "
            "strategy.scope():`, like the optimizer."
        )


def check_optimizer_is_own(optimizer: Any, variables: list) -> None:
    """Raises for an optimizer that was built for the weights of another model."""
    if not optimizer.built or (not variables and not optimizer._trainable_variables):
        return  # without weights to train it belongs to no model; clipping reports that
    own = {id(variable) for variable in optimizer._trainable_variables}
    strange = [variable.path for variable in variables if id(variable) not in own]
    if strange or not variables:
        raise ValueError(
            f"This {type(optimizer).__name__} was built for other weights (it does not know "
            f"{', '.join(strange[:3]) or 'those of a model that is not built'}), and its state and "
            "its ledger belong to them. Create one optimizer for each model."
        )


# 2. fit: whether the model is still the one that was compiled and accounted for.


def check_unchanged(model: keras.Model, compiled: Compiled, trainable: tuple[int, ...]) -> None:
    """Raises if weights, optimizer or ledger are not those that were compiled.

    Args:
      model: The model.
      compiled: What its ``compile`` fixed.
      trainable: As for ``check_trainable``.
    """
    check_strategy(model)
    check_trainable(model, trainable)
    optimizer = model.optimizer
    if optimizer is not compiled.optimizer:
        raise ValueError(
            "The optimizer was replaced after compile, so the noise would not be the one that is "
            "accounted for. Compile again with the new optimizer."
        )
    if optimizer.ledger is not compiled.ledger:
        raise ValueError(
            "The optimizer's ledger was replaced after compile. Compile again with ledger=ledger: "
            "what has been spent is then taken over."
        )
    for name in ("gradient_accumulation_steps", "loss_scale_factor"):
        if getattr(optimizer, name) is not None:
            raise ValueError(
                f"The optimizer's {name} was set to {getattr(optimizer, name)} after compile. That "
                "is not available, since a step of fit is one private step: set it back to None."
            )
    for note in sharing_note(model, compiled.ledger):
        raise ValueError(
            f"fit: {note}. Compile this model again, which takes them over, or compile both with "
            "one ledger: compile(..., ledger=ledger)."
        )


def check_trainable(model: keras.Model, trainable: tuple[int, ...]) -> None:
    """Raises if other weights are trainable than those that are clipped and noised.

    Args:
      model: The model.
      trainable: Identities of the variables that were trainable; none if there were no variables.
    """
    if trainable and trainable != tuple(id(v) for v in model.trainable_variables):
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
        "another ledger: epsilon does not include them, and tfdp.privacy.compose adds them up"
    ]


def check_accounted(compiled: Compiled) -> None:
    """Raises if the optimizer has taken steps that the ledger does not know of.

    Weights that are restored with an optimizer's state, by ``load_weights`` or from one of
    TensorFlow's own checkpoints, come without the ledger of what was spent on them.
    """
    made, known = int(compiled.optimizer.iterations.numpy()), compiled.ledger.steps
    if made > known:
        raise ValueError(
            f"The optimizer has taken {made} steps, but the ledger holds {known}, so no epsilon "
            "can be stated. The weights were restored without the ledger of what was spent on "
            "them: load_weights, tf.train.Checkpoint and BackupAndRestore restore only weights and "
            "the optimizer's state. Load the model with keras.models.load_model, or restore it "
            f"with {_CHECKPOINTS}. If you have the ledger, compile again with ledger=ledger. If it "
            "is lost, enter the steps in a new one: call Ledger.record once for every step."
        )


def check_not_set_back(compiled: Compiled) -> None:
    """Raises if a seeded run would repeat a step of this process, on whatever data.

    The ledger takes it for the very same release and does not count it. Only ``CheckpointEvery``
    sets a run back in order to repeat the same steps.
    """
    at, made = int(compiled.optimizer.iterations.numpy()), compiled.progress.next_step
    if compiled.seed is not None and at < made:
        raise ValueError(
            f"seed={compiled.seed}: optimizer.iterations was set back from {made} to {at} (by "
            "assign, load_weights or a checkpoint), so the same noise would be drawn again, for "
            "weights or examples that may differ. The difference of the two results would have no "
            "noise, and the ledger would count the steps once. Compile again with another seed or "
            f"none, or go back with the restore() of {_CHECKPOINTS}."
        )


# 3. fit: the arguments.


def check_callbacks(callbacks: Any) -> None:
    """Raises for what is not a callback, or restores weights without their ledger.

    Warns of callbacks through which metrics of private data control training.
    """
    for callback in keras.tree.flatten(getattr(callbacks, "callbacks", callbacks) or []):
        if not isinstance(callback, keras.callbacks.Callback):
            raise TypeError(
                f"callbacks holds {callback!r}: expected objects of keras.callbacks.Callback."
            )
        if isinstance(callback, keras.callbacks.BackupAndRestore):
            raise ValueError(
                "BackupAndRestore restores weights, but not the ledger of what was spent on them. "
                f"Use {_CHECKPOINTS}, and call its restore() before fit()."
            )
        steering = keras.callbacks.ReduceLROnPlateau, keras.callbacks.EarlyStopping
        if isinstance(callback, steering) or getattr(callback, "save_best_only", False):
            warnings.warn(
                f"{type(callback).__name__} controls training, or chooses weights, by "
                f"{callback.monitor!r}. If that is computed from private examples, the guarantee "
                "does not cover the choice.",
                stacklevel=3,
            )


def check_counts(least: int = 1, **values: Any) -> None:
    """Raises for what is neither None nor a whole number of at least ``least``."""
    for name, value in values.items():
        if value is not None:
            checks.whole(name, value, least, or_else="None")


def checked_validation_data(validation_data: Any) -> Any:
    """Returns the data with NumPy's text, which ``x`` may hold too, as Keras evaluates it.

    Keras would raise only after the first epoch, whose privacy is spent by then.

    Raises:
      TypeError: The data hold no examples.
      ValueError: There are no targets, or the numbers of examples differ.
    """
    data = validation_data
    expected = (
        "validation_data must be (x, y), (x, y, sample_weight), a tf.data.Dataset or an "
        "ExampleSource, got "
    )
    if isinstance(data, str | bytes | numbers.Number):
        raise TypeError(f"{expected}{data!r}.")
    arrays = isinstance(data, dict | list | tuple) or hasattr(data, "shape")
    if not arrays:  # a dataset, a loader, a generator, or None
        return data
    parts = data if isinstance(data, list | tuple) else (data,)
    if len(parts) not in (2, 3) or parts[1] is None:
        raise ValueError(
            f"{expected}a {type(data).__name__} without targets or of {len(parts)} parts."
        )
    named = dict(zip(("x", "y", "sample_weight"), parts, strict=False))
    lengths = {
        ".".join(map(str, path)): len(leaf)
        for path, leaf in keras.tree.flatten_with_path(named)
        if getattr(leaf, "shape", ())
    }
    if len(set(lengths.values())) > 1:
        raise ValueError(
            f"validation_data: arrays must have the same number of examples, got {lengths}."
        )
    return keras.tree.map_structure(_text_as_tensor, data)


def _text_as_tensor(leaf: Any) -> Any:
    is_text = isinstance(leaf, np.ndarray) and leaf.dtype.kind in "SU"
    return tf.constant(leaf) if is_text else leaf


def checked_validation_freq(frequency: Any) -> int | list[int]:
    """Returns ``validation_freq`` as Keras takes it: every so many epochs, or a list of epochs."""
    if isinstance(frequency, list | tuple):
        return [checks.positive_int("each of validation_freq", epoch) for epoch in frequency]
    return checks.whole("validation_freq", frequency, least=1, or_else="a list of epochs")


def check_preprocessor(model: keras.Model) -> None:
    """Raises for a model of KerasHub that would preprocess what it is trained on."""
    if getattr(model, "preprocessor", None) is not None:
        raise ValueError(
            f"The model {model.name!r} has a preprocessor, which fit does not run: it samples "
            "examples itself. Preprocess them first, x, y, sample_weight = "
            "model.preprocessor(x, y), and set model.preprocessor = None for the training."
        )


def check_plan(
    plan: PrivacyPlan | None, validation_split: float, user_ids: Any, **numbers_of_plan: Any
) -> None:
    """Raises for arguments of fit that contradict the plan, and for a plan without a delta.

    Args:
      plan: The plan of the optimizer, None where ``fit`` makes one.
      validation_split: As given to ``fit``.
      user_ids: As given to ``fit``.
      **numbers_of_plan: Its batch_size, num_examples and delta, None where they were left out.
    """
    if validation_split:
        raise ValueError(
            f"validation_split={validation_split}: the training data would then be smaller than "
            "the plan says. Split the data first, plan with the size of the training part, and "
            "pass validation_data."
        )
    for name, value in numbers_of_plan.items():
        if plan is not None and value is not None and value != getattr(plan, name):
            hint = " (To bound memory, set microbatch_size in compile.)"
            raise ValueError(
                f"{name}={value}, but the plan has {name}={getattr(plan, name)}. Leave {name} out, "
                f"or make another plan.{hint if name == 'batch_size' else ''}"
            )
    by_user = plan is not None and plan.examples_per_user is not None
    if user_ids is None and by_user:
        raise ValueError(
            "The plan protects users (it has examples_per_user), and fit does not know which user "
            "each example belongs to: pass user_ids, or plan without examples_per_user."
        )
    if user_ids is not None and not by_user:
        raise ValueError(
            "user_ids: the plan protects single examples. To protect users, plan with "
            "examples_per_user, and with num_examples and batch_size counting users."
        )
    if plan is not None and plan.delta is None:
        raise ValueError(
            "The plan has no delta, so no epsilon could be stated after training: give the plan "
            "its delta, commonly below 1/N."
        )


# 4. fit: the data; trial.py then tries the model on them.


def users_of(plan: PrivacyPlan | None, source: ExampleSource, user_ids: Any) -> UserExamples | None:
    """Returns the examples of every user, where the plan protects users."""
    if plan is None or plan.examples_per_user is None:
        return None
    users = UserExamples(user_ids, plan.examples_per_user)
    if users.num_examples != len(source):
        raise ValueError(
            f"user_ids holds {users.num_examples} ids for {len(source)} examples: give one id per "
            "example."
        )
    return users
