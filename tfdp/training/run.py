"""One call of ``fit``: which steps it makes, under which plan, with which randomness."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp import checks
from tfdp.data import ExampleSource
from tfdp.optimizers import PrivateOptimizer
from tfdp.privacy import PrivacyPlan
from tfdp.privacy.noise import NoiseKey
from tfdp.sampling import UserExamples
from tfdp.training import trial
from tfdp.training.compiled import Compiled
from tfdp.training.microbatches import MicrobatchStream, best_microbatch_size, sampler_for
from tfdp.training.step import PrivateStep
from tfdp.training.validation import check_optimizer_is_own

_MOST_TO_EVALUATE = 256  # examples at a time


@dataclasses.dataclass(frozen=True)
class Epochs:
    """How many steps a call of ``fit`` makes.

    Attributes:
      steps: Steps in all.
      steps_each: Steps of an epoch; the last one may be shorter.
      count: Number of epochs.
    """

    steps: int
    steps_each: int
    count: int


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """What one call of ``fit`` executes; it holds no data.

    Attributes:
      plan: The plan in force.
      step: What runs a private step.
      epochs: How many steps are made.
      first_step: Number of the first one.
      key: Key of all randomness: noise, sampling, dropout.
    """

    plan: PrivacyPlan
    step: PrivateStep
    epochs: Epochs
    first_step: int
    key: NoiseKey


def make_run(
    model: keras.Model,
    compiled: Compiled,
    plan: PrivacyPlan,
    epochs: Epochs,
    source: ExampleSource,
    earlier: Run | None,
) -> Run:
    """Returns a run of steps; the first one builds the model and what clips its gradients.

    Args:
      model: The compiled ``DPModel``.
      compiled: What its ``compile`` fixed.
      plan: The plan in force.
      epochs: How many steps to make.
      source: The examples.
      earlier: The run before, since ``compile``: its traced functions are used again, unless they
        divide by another expected batch size.
    """
    if earlier is not None and earlier.step.expected_batch_size == plan.denominator:
        step = earlier.step
    else:
        if earlier is None:
            trial.build(model, compiled.loss, source)
            check_optimizer_is_own(compiled.optimizer, model.trainable_variables)
        step = PrivateStep(model, compiled, plan)
    key = NoiseKey.from_entropy() if compiled.seed is None else NoiseKey.from_seed(compiled.seed)
    first_step = int(compiled.optimizer.iterations.numpy())
    return Run(plan, step, epochs, first_step, _agreed(key, model.distribute_strategy))


def stream_of(
    run: Run,
    compiled: Compiled,
    source: ExampleSource,
    users: UserExamples | None,
    strategy: tf.distribute.Strategy,
) -> MicrobatchStream:
    """Returns the microbatches that a run draws from examples, or from the users who own them."""
    size = compiled.microbatch_size or best_microbatch_size(
        run.plan, run.step.clipped, source, strategy.num_replicas_in_sync
    )
    return MicrobatchStream(
        source,
        sampler_for(run.plan, source, users, run.key.child("sampling").as_int()),
        size,
        strategy,
        seed=run.key.child("dropout").seeds(0, 1)[0],
        steps=range(run.first_step, run.first_step + run.epochs.steps),
        users=users,
    )


def planned_epochs(
    plan: PrivacyPlan, left: int, epochs: int | None, steps_per_epoch: int | None
) -> Epochs:
    """Returns how many steps a call of ``fit`` makes.

    An epoch is as many steps as give every example one expected use, ceil(N / B), unless
    ``steps_per_epoch`` says otherwise. Without ``epochs`` the run takes what is left of the
    plan; the last epoch may then be short.

    Raises:
      ValueError: More is asked for than the plan has left.
    """
    per_epoch = steps_per_epoch or math.ceil(1 / plan.sampling_probability)
    if epochs is not None and epochs < 1:
        raise ValueError(
            "There is no epoch to train: epochs is the number of the last epoch, as in Keras, and "
            "must be larger than initial_epoch."
        )
    if left <= 0:
        raise ValueError(
            f"The plan allows {plan.steps} steps (epsilon {plan.epsilon:.4g} at delta "
            f"{plan.delta:g}), and the steps in the ledger have spent all of it. Compile with a "
            "plan that has a larger budget."
        )
    if epochs is None:
        return Epochs(left, min(per_epoch, left), math.ceil(left / per_epoch))
    if epochs * per_epoch > left:
        raise ValueError(
            f"epochs={epochs} of {per_epoch} steps ask for {epochs * per_epoch} steps, but the "
            f"plan of {plan.steps} has {left} left. Ask for at most {left // per_epoch} epochs, "
            "leave epochs out to use what is left, or plan more steps."
        )
    return Epochs(epochs * per_epoch, per_epoch, epochs)


def plan_from_fit(
    optimizer: PrivateOptimizer,
    spent: int,
    epochs: int | None,
    steps_per_epoch: int | None,
    **public: Any,
) -> PrivacyPlan:
    """Returns the plan that l2_norm_clip, noise_multiplier and the arguments of ``fit`` make.

    Args:
      optimizer: The optimizer, which has no plan.
      spent: Steps in the ledger.
      epochs: As given to ``fit``, counted from ``initial_epoch``.
      steps_per_epoch: As given to ``fit``.
      **public: Its num_examples, batch_size and delta.

    Raises:
      ValueError: A public number is missing. The number of examples is never taken from the
        data: it would reveal whether an example is in them.
    """
    given = {**public, "epochs": epochs}
    missing = [
        name for name in ("num_examples", "batch_size", "epochs", "delta") if given[name] is None
    ]
    if epochs is None or missing:
        raise ValueError(
            f"fit: {' and '.join(missing)} missing. The optimizer was given l2_norm_clip and "
            "noise_multiplier without a plan, so fit needs num_examples, batch_size, epochs and "
            "delta (public numbers, not counted from the data). Or compile with "
            "privacy=tfdp.PrivacyPlan(...)."
        )
    for name in ("num_examples", "batch_size"):
        checks.positive_int(name, public[name])
    per_epoch = steps_per_epoch or math.ceil(public["num_examples"] / public["batch_size"])
    return PrivacyPlan(
        steps=spent + max(1, epochs) * per_epoch,
        clip_norm=optimizer.clip_norm,
        noise_multiplier=optimizer.noise_multiplier,
        **public,
    )


def evaluated_at_once(
    asked: int | None, compiled: Compiled, plan: PrivacyPlan | None, replicas: int
) -> int:
    """Returns how many examples all replicas together evaluate at a time.

    As many on each: Keras fails on a first batch that they cannot share evenly.
    """
    default = _MOST_TO_EVALUATE
    if plan is not None:
        default = min(default, math.ceil(plan.batch_size))
    return math.ceil((asked or compiled.microbatch_size or default) / replicas) * replicas


def class_to_sample_weight(class_weight: dict, y: Any, sample_weight: Any) -> np.ndarray:
    """Turns class weights into sample weights ``[N]``, which apply before clipping.

    Raises:
      TypeError: It is not a dict of numbers.
      ValueError: The targets are not integer classes, or a class has no weight.
    """
    if not isinstance(class_weight, dict):
        raise TypeError(f"class_weight={class_weight!r}: expected a dict from class to weight.")
    for label, weight in class_weight.items():
        checks.not_negative(f"class_weight[{label!r}]", weight)
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


def _agreed(key: NoiseKey, strategy: tf.distribute.Strategy) -> NoiseKey:
    """Returns the first worker's key on every worker.

    All replicas must draw the same noise and the same examples; entropy drawn on each machine
    would drive their weights apart.
    """
    if not strategy.extended._in_multi_worker_mode():
        return key

    pieces = np.frombuffer(key.secret, dtype="<u2").astype(np.int32)

    def first_only():
        replica = tf.distribute.get_replica_context()
        own = tf.constant(pieces) * tf.cast(replica.replica_id_in_sync_group == 0, tf.int32)
        return replica.all_reduce(tf.distribute.ReduceOp.SUM, own)

    shared = strategy.run(tf.function(first_only))
    pieces = strategy.experimental_local_results(shared)[0].numpy()
    return NoiseKey(pieces.astype("<u2").tobytes(), key.fixed)
