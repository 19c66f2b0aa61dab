"""The microbatches of consecutive steps, as a stream for every replica."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfdp.clipping import Batch
from tfdp.data import ExampleSource
from tfdp.sampling import Sampler, UserExamples, split_into_chunks


class MicrobatchStream:
    """Streams the records of steps in microbatches of one static shape.

    Every replica gets as many microbatches a step as every other; what is missing is padding.
    An empty step still has one microbatch, of padding only.

    Args:
      source: The records.
      sampler: Who takes part in a step.
      microbatch_size: Rows that one replica handles at a time.
      strategy: The distribution strategy of the model.
      seed: ``[2]`` integers, from which dropout draws.
      units: Whose the records are, where the sampler draws persons. Microbatches then hold whole
        persons, each in as many rows as the bound on their records.

    Raises:
      ValueError: A microbatch does not hold one person.
    """

    def __init__(
        self,
        source: ExampleSource,
        sampler: Sampler,
        microbatch_size: int,
        strategy: tf.distribute.Strategy,
        seed: np.ndarray,
        units: UserExamples | None = None,
    ):
        self._source = source
        self._sampler = sampler
        rows_each = 1 if units is None else units.examples_per_user
        if microbatch_size < rows_each:
            raise ValueError(
                f"microbatch_size={microbatch_size} is less than the records of one person, "
                f"examples_per_user={rows_each}, which are clipped together: raise the former, or "
                "plan with fewer records a person."
            )
        self._drawn_at_once = microbatch_size // rows_each
        self._size = self._drawn_at_once * rows_each
        self._units = units
        self._strategy = strategy
        self._replicas = strategy.num_replicas_in_sync
        self._seed = tf.constant(seed.astype(np.int64) % (2**31), tf.int32)

    def steps(self, update: int) -> int:
        """Returns how many microbatches every replica handles in a step."""
        drawn = self._sampler.count(update)
        return max(1, math.ceil(drawn / (self._drawn_at_once * self._replicas)))

    def iterator(self, first_step: int, steps: int) -> Iterator[Any]:
        """Returns an endless iterator of microbatches; after those steps, of padding only.

        Records are read ahead, and those of a step that nobody makes would be counted among
        the unreadable ones.
        """
        if self._replicas == 1:
            return iter(self._dataset(first_step, steps, 0, 1))
        return iter(
            self._strategy.distribute_datasets_from_function(
                lambda context: self._dataset(
                    first_step, steps, context.input_pipeline_id, context.num_input_pipelines
                )
            )
        )

    def _dataset(self, first_step: int, steps: int, worker: int, workers: int) -> tf.data.Dataset:
        local = self._replicas // workers

        def microbatches():
            for update in itertools.count(first_step):
                left = first_step + steps - update
                drawn = self._sampler.indices(update) if left > 0 else np.empty(0, np.int64)
                chunks, masks = split_into_chunks(drawn, self._drawn_at_once, self._replicas)
                for i in range(len(chunks)):
                    if i % self._replicas // local == worker:  # consecutive ones go side by side
                        yield update, i, *self._rows(chunks[i], masks[i])

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

    def _rows(self, drawn: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Records of what the sampler drew."""
        return (drawn, mask) if self._units is None else self._units.rows(drawn, mask)

    def _load(self, update: tf.Tensor, chunk: tf.Tensor, rows: tf.Tensor, mask: tf.Tensor) -> Batch:
        x, y, sample_weight, valid = self._source.fetch(rows, update)
        fold = tf.random.experimental.stateless_fold_in
        seed = fold(fold(self._seed, update), chunk)
        return Batch(x, y, sample_weight, mask & valid, seed)
