"""The microbatches of consecutive steps, as a stream for every replica."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.stats
import tensorflow as tf

from tfdp.clipping import Batch, ClippedGradient
from tfdp.data import ExampleSource
from tfdp.privacy import PrivacyPlan
from tfdp.sampling import (
    FixedSizeSampler,
    FullBatchSampler,
    PoissonSampler,
    Sampler,
    UserExamples,
    split_into_microbatches,
)


class MicrobatchStream:
    """Iterates over the examples of steps, in microbatches of one static shape.

    Every replica gets as many microbatches per step as every other; what is missing is padding.
    An empty step still has one microbatch, of padding only. After the last step there is padding
    without end: examples are read ahead, and those of a step that nobody makes would be counted
    among the unreadable ones.

    Args:
      source: The examples.
      sampler: Who takes part in a step.
      microbatch_size: Examples that one replica handles at a time.
      strategy: The distribution strategy of the model.
      seed: ``[2]`` integers, from which dropout draws.
      steps: The numbers of the steps.
      users: The examples of every user, where the sampler draws users. Microbatches then hold whole
        users, each in ``examples_per_user`` places.

    Raises:
      ValueError: A microbatch does not hold one user.
    """

    def __init__(
        self,
        source: ExampleSource,
        sampler: Sampler,
        microbatch_size: int,
        strategy: tf.distribute.Strategy,
        seed: np.ndarray,
        steps: range,
        users: UserExamples | None = None,
    ):
        self.source = source
        self._sampler = sampler
        each = 1 if users is None else users.examples_per_user
        if microbatch_size < each:
            raise ValueError(
                f"microbatch_size={microbatch_size} is smaller than examples_per_user={each}, and "
                "the examples of a user are clipped together: use a larger microbatch_size, or "
                "plan with a smaller examples_per_user."
            )
        self._drawn_at_once = microbatch_size // each
        self._size = self._drawn_at_once * each
        self._users = users
        self._replicas = strategy.num_replicas_in_sync
        self._seed = tf.constant(seed.astype(np.int64) % (2**31), tf.int32)
        self._steps = steps
        self._microbatches = self._started(strategy)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._microbatches)

    def count(self, step: int) -> int:
        """Returns how many microbatches every replica handles in a step."""
        drawn = self._sampler.count(step)
        return max(1, math.ceil(drawn / (self._drawn_at_once * self._replicas)))

    def _started(self, strategy: tf.distribute.Strategy) -> Iterator[Any]:
        if self._replicas == 1:
            return iter(self._dataset(0, 1))
        return iter(
            strategy.distribute_datasets_from_function(
                lambda context: self._dataset(
                    context.input_pipeline_id, context.num_input_pipelines
                )
            )
        )

    def _dataset(self, worker: int, workers: int) -> tf.data.Dataset:
        local = self._replicas // workers

        def microbatches():
            for step in itertools.count(self._steps.start):
                drawn = np.empty(0, np.int64)
                if step in self._steps:
                    drawn = self._sampler.indices(step)
                parts, masks = split_into_microbatches(drawn, self._drawn_at_once, self._replicas)
                for i in range(len(parts)):
                    if i % self._replicas // local == worker:  # consecutive ones go side by side
                        yield step, i, *self._examples(parts[i], masks[i])

        signature = (
            tf.TensorSpec([], tf.int64),
            tf.TensorSpec([], tf.int64),
            tf.TensorSpec([self._size], tf.int64),
            tf.TensorSpec([self._size], tf.bool),
        )
        dataset = tf.data.Dataset.from_generator(microbatches, output_signature=signature)
        # Endless data keep their static shapes on the way to the replicas.
        dataset = dataset.apply(
            tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        )
        dataset = dataset.map(self._load, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        return dataset.prefetch(2)

    def _examples(self, drawn: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the examples of what the sampler drew."""
        return (drawn, mask) if self._users is None else self._users.of(drawn, mask)

    def _load(self, step: tf.Tensor, i: tf.Tensor, examples: tf.Tensor, mask: tf.Tensor) -> Batch:
        x, y, sample_weight, valid = self.source.fetch(examples, step)
        fold = tf.random.experimental.stateless_fold_in
        return Batch(x, y, sample_weight, mask & valid, fold(fold(self._seed, step), i))


def sampler_for(
    plan: PrivacyPlan, source: ExampleSource, users: UserExamples | None, seed: int
) -> Sampler:
    """Returns the sampler of examples, or of users, that executes what the plan accounts for.

    Args:
      plan: The plan.
      source: The examples.
      users: The examples of every user, where the plan protects users.
      seed: Seed of the sampling, 128 bits.

    Raises:
      ValueError: ``fit`` does not execute the plan's sampling, or not on so many examples.
    """
    drawn = "examples" if users is None else "users"
    count = len(source) if users is None else users.num_users
    if plan.sampling == "fixed_size":
        if count != plan.num_examples:
            raise ValueError(
                f"The plan draws batches of fixed size from num_examples={plan.num_examples} "
                f"{drawn} and the data hold {count}: the sampling would not be the one accounted "
                "for. Make the plan for the data's size."
            )
        return FixedSizeSampler(count, plan.batch_size, seed)
    if plan.sampling not in ("poisson", "full_batch"):
        raise ValueError(
            f"fit does not execute sampling={plan.sampling!r}, which describes steps taken "
            'elsewhere: plan with "poisson", "full_batch" or "fixed_size".'
        )
    if abs(count - plan.num_examples) > 0.01 * plan.num_examples:
        warnings.warn(
            f"The plan is for num_examples={plan.num_examples} and the data hold {count} {drawn}. "
            f"The guarantee holds, but batches will be {count / plan.num_examples:.3g} times the "
            "expected size.",
            stacklevel=2,
        )
    if plan.sampling == "full_batch":
        return FullBatchSampler(count)
    return PoissonSampler(count, plan.sampling_probability, seed)


def best_microbatch_size(
    plan: PrivacyPlan, clipped: ClippedGradient, source: ExampleSource, replicas: int
) -> int:
    """Returns how many examples one replica best handles at a time; those of whole users."""
    each = plan.examples_per_user or 1
    x, y, sample_weight, valid = source.fetch(tf.zeros([each], tf.int64), tf.zeros([], tf.int64))
    batch = Batch(x, y, sample_weight, valid, tf.zeros([2], tf.int32))
    drawn, probabilities = _drawn_in_a_step(plan)
    best = clipped.best_microbatch_size(batch, drawn * each, probabilities, replicas)
    return max(1, best // each) * each


def _drawn_in_a_step(plan: PrivacyPlan) -> tuple[np.ndarray, np.ndarray]:
    """Returns how many examples, or users, a step may draw, and how likely each number is."""
    if plan.sampling != "poisson":
        return np.array([math.ceil(plan.batch_size)]), np.ones(1)
    drawn = scipy.stats.binom(plan.num_examples, plan.sampling_probability)
    counts = np.arange(drawn.ppf(1e-9), drawn.isf(1e-9) + 1)
    return counts, drawn.pmf(counts)
