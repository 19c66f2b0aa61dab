"""The sub-batches of consecutive updates, as a stream for every replica."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfdp.clipping import Batch
from tfdp.data import RecordSource
from tfdp.sampling import Sampler, split_into_chunks


class MicrobatchStream:
    """Streams the records of updates in sub-batches of one static shape.

    Every replica gets as many sub-batches an update as every other; what is missing is padding.
    An empty update still has one sub-batch, of padding only.

    Args:
      source: The records.
      sampler: Who takes part in an update.
      microbatch_size: Rows that one replica handles at a time.
      strategy: The distribution strategy of the model.
      seed: ``[2]`` integers, from which dropout draws.
    """

    def __init__(
        self,
        source: RecordSource,
        sampler: Sampler,
        microbatch_size: int,
        strategy: tf.distribute.Strategy,
        seed: np.ndarray,
    ):
        self._source = source
        self._sampler = sampler
        self._size = microbatch_size
        self._strategy = strategy
        self._replicas = strategy.num_replicas_in_sync
        self._seed = tf.constant(seed.astype(np.int64) % (2**31), tf.int32)

    def steps(self, update: int) -> int:
        """Returns how many sub-batches every replica handles in an update."""
        rows = self._sampler.count(update)
        return max(1, math.ceil(rows / (self._size * self._replicas)))

    def iterator(self, first_update: int) -> Iterator[Any]:
        """Returns an endless iterator of sub-batches, from an update on."""
        if self._replicas == 1:
            return iter(self._dataset(first_update, 0, 1))
        return iter(
            self._strategy.distribute_datasets_from_function(
                lambda context: self._dataset(
                    first_update, context.input_pipeline_id, context.num_input_pipelines
                )
            )
        )

    def _dataset(self, first_update: int, worker: int, workers: int) -> tf.data.Dataset:
        local = self._replicas // workers

        def chunks():
            update = first_update
            while True:
                drawn = self._sampler.indices(update)
                rows, mask = split_into_chunks(drawn, self._size, self._replicas)
                for i in range(len(rows)):
                    if i % self._replicas // local == worker:  # consecutive ones go side by side
                        yield update, i, rows[i], mask[i]
                update += 1

        signature = (
            tf.TensorSpec([], tf.int64),
            tf.TensorSpec([], tf.int64),
            tf.TensorSpec([self._size], tf.int64),
            tf.TensorSpec([self._size], tf.bool),
        )
        dataset = tf.data.Dataset.from_generator(chunks, output_signature=signature)
        # Endless data keep their static shapes on the way to the replicas.
        dataset = dataset.apply(
            tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        )
        dataset = dataset.map(self._load, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        return dataset.prefetch(2)

    def _load(self, update: tf.Tensor, chunk: tf.Tensor, rows: tf.Tensor, mask: tf.Tensor) -> Batch:
        x, y, sample_weight, valid = self._source.fetch(rows, update)
        fold = tf.random.experimental.stateless_fold_in
        seed = fold(fold(self._seed, update), chunk)
        return Batch(x, y, sample_weight, mask & valid, seed)
