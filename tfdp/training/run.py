"""One call of fit: which steps it makes, from which records, with which noise."""

from __future__ import annotations

import math
import warnings
from typing import Any, cast

import keras
import numpy as np
import tensorflow as tf

from tfdp.data import ExampleSource
from tfdp.privacy import PrivacyPlan
from tfdp.privacy.noise import NoiseKey
from tfdp.sampling import (
    FixedSizeSampler,
    FullBatchSampler,
    PoissonSampler,
    Sampler,
    UserExamples,
)
from tfdp.training.checks import check_trainable
from tfdp.training.epsilon import EpsilonMeter
from tfdp.training.microbatches import MicrobatchStream
from tfdp.training.state import PrivateState
from tfdp.training.update import PrivateStep
from tfdp.training.usable import warn_of_nothing_used
from tfdp.training.weight_watch import WeightWatch


class PrivateRun:
    """Executes a number of steps, each entered in the ledger before its result can be seen.

    Args:
      model: The compiled, built ``DPModel``.
      source: The records.
      microbatch_size: Rows that one replica handles at a time.
      key: Key of all randomness: noise, sampling, dropout.
      steps: How many steps the run may make.
      steps_per_epoch: Epoch length in steps.
      units: Whose the records are, where the plan protects persons.
    """

    def __init__(
        self,
        model: keras.Model,
        source: ExampleSource,
        microbatch_size: int,
        key: NoiseKey,
        steps: int,
        steps_per_epoch: int,
        units: UserExamples | None = None,
    ):
        self._model = model
        state: PrivateState = model._private
        # compile and fit have set both before a run is made.
        self._plan, self._update = cast(PrivacyPlan, state.plan), cast(PrivateStep, state.update)
        self._state = state
        self._noise = key.child("noise")
        self._seeded = key.fixed
        self._left = steps
        self._per_epoch = steps_per_epoch
        self._done = 0
        self._next = int(model.optimizer.iterations.numpy())
        self._epsilon = EpsilonMeter(self._plan, state.ledger)
        sampling = key.child("sampling").as_int()
        self._stream = MicrobatchStream(
            source,
            _sampler(self._plan, source, units, sampling),
            microbatch_size,
            model.distribute_strategy,
            seed=key.child("dropout").seeds(0, 1)[0],
            units=units,
        )
        self._batches = self._stream.iterator(self._next, steps)
        self._watch = WeightWatch(model.trainable_variables)
        self._source = source
        self._seen = int(state.examples), int(state.non_finite)

    def train_function(self, _: Any) -> dict[str, Any]:
        """Runs the next steps, as many as ``steps_per_execution``; returns the epoch's logs."""
        if self._done == 0 and self._model.optimizer.iterations.numpy() != self._next:
            raise ValueError(
                "A callback put back other weights when training began, but not the ledger of "
                "what they cost. Use tfdp.training.checkpoints.CheckpointEvery, which keeps both, "
                "and call its restore() before fit()."
            )
        check_trainable(self._model, self._state)
        in_epoch = self._per_epoch - self._done % self._per_epoch
        asked = self._model.steps_per_execution
        count = min(asked if isinstance(asked, int) else 1, in_epoch, self._left)
        if count == 0:
            raise StopIteration
        self._watch.come_back()
        for _ in range(count):
            self._one_update()
        self._watch.leave()
        logs = {**self._metrics(), **self._epsilon.logs()}
        if self._done % self._per_epoch == 0 or not self._left:
            self._look_at_epoch()
        moving = self._model.optimizer.clip_norm
        return logs if moving is None else {**logs, "clip_norm": float(moving.numpy())}

    def _metrics(self) -> dict[str, Any]:
        """The epoch's metrics; NaN, and not Keras's zero, where nothing that was drawn was used.

        Updates that drew nothing are no sign of a fault: they leave the zero.
        """
        # Keras's means of the losses of single outputs stand at zero: only evaluation fills them.
        empty = {metric.name for metric in self._model._compile_loss.metrics}
        metrics = self._model.get_metrics_result()
        metrics = {name: value for name, value in metrics.items() if name not in empty}
        used, left_out = self._seen
        if int(self._state.examples) > used or int(self._state.non_finite) == left_out:
            return metrics
        return keras.tree.map_structure(lambda _: math.nan, metrics)

    def _look_at_epoch(self) -> None:
        """Warns if none of the examples drawn since the epoch began was used."""
        state, (used, left_out) = self._state, self._seen
        self._seen = int(state.examples), int(state.non_finite)
        not_finite, unreadable = self._seen[1] - left_out, self._source.bad_records
        if self._seen[0] == used and (not_finite or unreadable):
            warn_of_nothing_used(not_finite, unreadable)

    def _one_update(self) -> None:
        totals = self._update(
            self._batches,
            self._stream.steps(self._next),
            self._update.randomness(self._noise, self._next),
            before_release=self._enter,
        )
        self._state.count(totals)
        self._next += 1
        self._state.next_step = self._next
        self._done += 1
        self._left -= 1

    def _enter(self) -> None:
        # With a fixed seed, a run that goes on from a checkpoint makes the steps that a crash
        # took away again, as the very same releases; the ledger knows them by stream and number.
        settings, ledger = self._plan.settings, self._state.ledger
        if self._seeded:
            ledger.record(settings, stream=self._state.stream, step=self._next)
        else:
            ledger.record(settings)


def _sampler(
    plan: PrivacyPlan, source: ExampleSource, units: UserExamples | None, seed: int
) -> Sampler:
    """Returns the sampler of records, or of the persons whose they are."""
    if units is None:
        return sampler_for(plan, len(source), seed)
    return sampler_for(plan, units.num_users, seed, what="persons")


def sampler_for(plan: PrivacyPlan, records: int, seed: int, what: str = "records") -> Sampler:
    """Returns the sampler that executes what the plan accounts for.

    Args:
      plan: The plan.
      records: How many there are to sample from.
      seed: Of the sampling, 128 bits.
      what: What they are, for messages.

    Raises:
      ValueError: ``fit`` does not execute the plan's sampling, or not on so many records.
    """
    if plan.sampling == "fixed_size":
        if records != plan.num_examples:
            raise ValueError(
                f"The plan draws batches of fixed size from num_examples={plan.num_examples} "
                f"{what} and the data hold {records}: the sampling would not be the one "
                "accounted for. Make the plan for the data's size."
            )
        return FixedSizeSampler(records, plan.batch_size, seed)
    if plan.sampling not in ("poisson", "full_batch"):
        raise ValueError(
            f"fit does not execute sampling={plan.sampling!r}, which is for steps made "
            'elsewhere: plan with "poisson", "full_batch" or "fixed_size".'
        )
    if abs(records - plan.num_examples) > 0.01 * plan.num_examples:
        warnings.warn(
            f"The plan is for num_examples={plan.num_examples} and the data hold {records} "
            f"{what}. The guarantee holds, but batches will be "
            f"{records / plan.num_examples:.3g} times the expected size.",
            stacklevel=2,
        )
    if plan.sampling == "full_batch":
        return FullBatchSampler(records)
    return PoissonSampler(records, plan.sampling_probability, seed)


def planned_steps(
    plan: PrivacyPlan, left: int, epochs: int | None, steps_per_epoch: int | None
) -> tuple[int, int, int]:
    """Returns (steps, steps an epoch, epochs) of a call of fit.

    An epoch is as many steps as give every record one expected use, ceil(N / B), unless
    ``steps_per_epoch`` says otherwise. Without ``epochs`` the run takes what is left of the
    plan; the last epoch may then be short.

    Raises:
      ValueError: More is asked for than the plan has left.
    """
    per_epoch = steps_per_epoch or math.ceil(1 / plan.sampling_probability)
    if epochs is not None and epochs < 1:
        raise ValueError(
            "There is no epoch to train: epochs counts from the first one on, and must be more "
            "than initial_epoch."
        )
    if left <= 0:
        raise ValueError(
            f"All that the plan of {plan.steps} steps allows (epsilon {plan.epsilon:.4g} at "
            f"delta {plan.delta:g}) has been spent, by steps that the ledger holds: training on "
            "would spend more privacy than planned. Compile with a plan of larger budget."
        )
    if epochs is None:
        return left, min(per_epoch, left), math.ceil(left / per_epoch)
    if epochs * per_epoch > left:
        raise ValueError(
            f"epochs={epochs} of {per_epoch} steps ask for {epochs * per_epoch} steps, but the "
            f"plan of {plan.steps} has {left} left. Ask for at most {left // per_epoch} epochs, "
            "leave epochs out to use what is left, or plan more steps."
        )
    return epochs * per_epoch, per_epoch, epochs


def agreed_key(key: NoiseKey, strategy: tf.distribute.Strategy) -> NoiseKey:
    """Returns the first worker's key on every worker.

    All replicas must draw the same noise and the same records; entropy drawn on each machine
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
