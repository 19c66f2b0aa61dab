"""One private step: microbatches in, one noised step out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfdp.clipping import Batch, ClippedGradient
from tfdp.clipping.factors import added, no_sums
from tfdp.optimizers import PrivateOptimizer
from tfdp.privacy.grid import Grid
from tfdp.privacy.noise import NoiseKey, NoisyGradients, privatize, privatize_on_grid
from tfdp.training.adaptive import AdaptiveClipNorm


class Totals(NamedTuple):
    """What microbatches add up to, on one replica.

    Attributes:
      sums: Clipped gradient sum of every trainable variable, float32 or float64.
      examples: Number of examples that contributed, float32.
      non_finite: Number of examples left out because their gradient was not finite, float32.
      unclipped: What ``AdaptiveClipNorm.count`` adds up to, float32; zero where C is fixed.
    """

    sums: list[tf.Tensor]
    examples: tf.Tensor
    non_finite: tf.Tensor
    unclipped: tf.Tensor


class PrivateStep:
    """Runs steps of a compiled model under its strategy.

    Args:
      model: A model whose optimizer is a ``PrivateOptimizer``, built.
      clipped: The model's clipped gradient.
      expected_batch_size: The divisor: a public constant.
      on_metrics: ``(y, outputs, sample_weight, used, losses)``: updates Keras metrics, on every
          replica.
      secure: Whether the noise is integers on a grid.
      adaptive: The clip norm, if it follows a quantile.

    Attributes:
      clipped: The model's clipped gradient.

    Raises:
      ValueError: The noise does not fit a grid, or the replicas cannot add up.
    """

    def __init__(
        self,
        model: keras.Model,
        clipped: ClippedGradient,
        expected_batch_size: float,
        on_metrics: Callable,
        secure: bool = False,
        adaptive: AdaptiveClipNorm | None = None,
    ):
        self._model = model
        self.clipped = clipped
        self._optimizer: PrivateOptimizer = model.optimizer
        self._expected_batch_size = expected_batch_size
        self._on_metrics = on_metrics
        self._adaptive = adaptive
        self._strategy = model.distribute_strategy
        self._shapes = [tuple(variable.shape) for variable in clipped.forward.trainable]
        self._grid = self._make_grid() if secure else None
        run = self._strategy.run
        self._accumulate = _graph(lambda totals, batch: run(self._accumulate_one, (totals, batch)))
        self._complete = _graph(lambda *given: run(self._complete_one, given))
        self._release = _graph(lambda totals, noise: run(self._release_one, (totals, noise)))
        self._nothing = self._nothing_yet()

    def __call__(
        self, batches: Iterator[Any], steps: int, noise: Any, before_release: Callable
    ) -> Totals:
        """Runs one step.

        Args:
          batches: Yields microbatches.
          steps: How many of them make up the update.
          noise: What ``randomness`` gave for this update.
          before_release: Called after the sum is formed and before its result can be seen: the
            place for the ledger entry.

        Returns:
          The update's counts over all replicas; ``sums`` is empty.
        """
        totals, last = self._nothing, None
        for _ in range(steps):
            batch = next(batches)
            totals, complete = self._accumulate(totals, batch)
            # One microbatch behind, so that devices need not wait to be asked.
            totals = self._completed(totals, last)
            last = batch, complete
        totals = self._completed(totals, last)
        before_release()
        released = self._release(totals, noise)
        local = self._strategy.experimental_local_results
        examples, non_finite = (local(count)[0] for count in released)
        return Totals([], examples, non_finite, tf.zeros([]))

    def randomness(self, key: NoiseKey, update: int) -> Any:
        """Returns what fixes the noise of a step: its seeds, or its integers on the grid."""
        if self._grid is None:
            own = 0 if self._adaptive is None else 1  # the count's, after the weights'
            return tf.constant(key.seeds(update, len(self._shapes) + own))
        return [
            tf.constant(key.integers(update, i, shape, self._grid.deviation))
            for i, shape in enumerate(self._shapes)
        ]

    def _make_grid(self) -> Grid:
        clip, noise = self._optimizer.l2_norm_clip, self._optimizer.noise_multiplier
        return Grid.of(clip, noise, sum(map(math.prod, self._shapes)))

    def _zeros(self) -> Totals:
        sums = no_sums(self.clipped.forward.trainable)
        return Totals(sums, tf.zeros([]), tf.zeros([]), tf.zeros([]))

    def _nothing_yet(self) -> Totals:
        """Returns zeros, added up over the replicas: what fails must fail before it is paid for.

        TensorFlow numbers the sums of every strategy from the same number on, and takes those of
        two strategies in one process for one another.

        Raises:
          ValueError: Replicas cannot add up.
        """
        run = self._strategy.run
        try:
            return _graph(lambda: run(lambda: _over_replicas(self._zeros())))()
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(
                "The replicas cannot add up their gradients, as happens where another "
                f"{type(self._strategy).__name__} has trained another model in this process. Start "
                "it anew, make one strategy, and build and train all models in its scope. "
                f"TensorFlow says: {error.message}"
            ) from error

    def _completed(self, totals: Totals, last: tuple | None) -> Totals:
        """Adds the sums of a microbatch that were left out, for examples that overflowed."""
        if last is None:
            return totals
        batch, complete = last
        if all(self._strategy.experimental_local_results(complete)):
            return totals
        return self._complete(totals, batch, complete)

    def _accumulate_one(self, totals: Totals, batch: Batch) -> tuple[Totals, tf.Tensor]:
        """Adds a microbatch up; its sums only if the flag that comes with them says so."""
        part, complete = self.clipped.attempt(*self._arguments(batch))
        adaptive = self._adaptive
        count = 0.0 if adaptive is None else adaptive.count(part.norms, part.used)
        self._on_metrics(batch.y, part.outputs, batch.sample_weight, part.used, part.losses)
        sums = tf.cond(complete, lambda: added(totals.sums, part.sums), lambda: totals.sums)
        totals = Totals(
            sums,
            totals.examples + _count(part.used),
            totals.non_finite + _count(batch.mask & ~part.used),
            totals.unclipped + count,
        )
        return totals, complete

    def _complete_one(self, totals: Totals, batch: Batch, complete: tf.Tensor) -> Totals:
        """Adds the sums of a microbatch that ``_accumulate_one`` left out on this replica."""

        def with_them() -> list[tf.Tensor]:
            part = self.clipped.skipping_overflows(*self._arguments(batch))
            return added(totals.sums, part.sums)

        return totals._replace(sums=tf.cond(complete, lambda: totals.sums, with_them))

    def _arguments(self, batch: Batch) -> tuple:
        """Returns what the clipped gradient is called with."""
        forward, adaptive = self.clipped.forward, self._adaptive
        weights = [tf.convert_to_tensor(v.value) for v in forward.trainable]
        state = [tf.convert_to_tensor(v.value) for v in forward.state]
        return weights, state, batch, None if adaptive is None else adaptive.scale

    def _release_one(self, totals: Totals, noise: Any) -> list[tf.Tensor]:
        totals = _over_replicas(totals)
        noisy = self._noised(totals, noise)
        variables = self._model.trainable_variables
        self._optimizer.apply(_add_regularization(noisy, variables), variables)
        if self._adaptive is not None:
            self._adaptive.move(totals.unclipped, noise[-1])
        return [totals.examples, totals.non_finite]

    def _noised(self, totals: Totals, noise: Any) -> NoisyGradients:
        if self._grid is not None:
            step, divisor = self._grid.step, self._expected_batch_size
            return privatize_on_grid(totals.sums, noise, step, divisor)
        # The same seeds give the same noise on every replica: it is drawn once, after the sum.
        optimizer, adaptive = self._optimizer, self._adaptive
        return privatize(
            totals.sums,
            optimizer.l2_norm_clip if adaptive is None else adaptive.clip_norm,
            optimizer.noise_multiplier if adaptive is None else adaptive.noise_multiplier,
            self._expected_batch_size,
            noise,
        )


def _over_replicas(totals: Totals) -> Totals:
    # Collectives want to know on which device a tensor lies; function arguments do not say.
    totals = keras.tree.map_structure(tf.identity, totals)
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, totals)


def _add_regularization(noisy: NoisyGradients, variables: list) -> NoisyGradients:
    """Adds the gradients of weight regularizers: functions of the weights alone, so public."""
    regularized = [i for i, v in enumerate(variables) if v.regularizer is not None]
    if not regularized:
        return noisy
    values = [tf.convert_to_tensor(variables[i].value) for i in regularized]
    with tf.GradientTape() as tape:
        tape.watch(values)
        penalty = tf.add_n(
            [variables[i].regularizer(v) for i, v in zip(regularized, values, strict=True)]
        )
    gradients = list(noisy.gradients)
    for i, gradient in zip(regularized, tape.gradient(penalty, values), strict=True):
        gradients[i] += tf.cast(gradient, gradients[i].dtype)
    return NoisyGradients(gradients)


def _count(rows: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.cast(rows, tf.float32))


def _graph(function: Callable) -> Callable:
    return tf.function(function, autograph=False)
