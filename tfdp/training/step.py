"""One private step: microbatches in, one noised step out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfdp.clipping import Batch, ClippedGradient
from tfdp.clipping.factors import added, no_sums
from tfdp.privacy import PrivacyPlan, QuantileClipping
from tfdp.privacy.grid import Grid
from tfdp.privacy.noise import NoiseKey, NoisyGradients, privatize, privatize_on_grid
from tfdp.training.compiled import Compiled
from tfdp.training.metrics import update_metrics

# How far an adaptive clip norm may go from where it starts: float32 and the noise stay meaningful.
_FURTHEST = 1e6


class Totals(NamedTuple):
    """What microbatches add up to, on one replica.

    Attributes:
      sums: Clipped gradient sum of every trainable variable, float32 or float64.
      examples: Number of examples that contributed, float32.
      non_finite: Number of examples skipped because their gradient was not finite, float32.
      unclipped: What ``AdaptiveClipNorm.count`` adds up to, float32; zero where C is fixed.
    """

    sums: list[tf.Tensor]
    examples: tf.Tensor
    non_finite: tf.Tensor
    unclipped: tf.Tensor


class PrivateStep:
    """Runs steps of a compiled model under its strategy.

    Args:
      model: A built ``DPModel``.
      compiled: What its ``compile`` fixed.
      plan: The plan in force. Plans that differ in their steps alone can share a ``PrivateStep``.

    Attributes:
      clipped: The model's clipped gradient.
      trainable: Identities of the variables whose gradients are clipped and noised.
      expected_batch_size: The divisor: a public constant.

    Raises:
      ValueError: The model cannot be clipped, the noise does not fit a grid, or the replicas cannot
        add up.
    """

    def __init__(self, model: keras.Model, compiled: Compiled, plan: PrivacyPlan):
        self.clipped = ClippedGradient(
            model,
            compiled.loss,
            plan.clip_norm,
            clipping=plan.clipping,
            engine=compiled.engine,
            with_outputs=model._compile_metrics is not None,
            jit_compile=_jit_compile(model),
            examples_per_user=plan.examples_per_user or 1,
            public_examples=compiled.public_examples,
        )
        self.trainable = tuple(id(v) for v in self.clipped.forward.trainable)
        self.expected_batch_size = plan.denominator
        self._model = model
        self._optimizer = compiled.optimizer
        self._strategy = model.distribute_strategy
        self._clip_norm = plan.clip_norm
        self._noise_multiplier = plan.settings.gradient_noise_multiplier
        self._shapes = [tuple(variable.shape) for variable in self.clipped.forward.trainable]
        adaptive = compiled.optimizer.adaptive_clip_norm
        self._adaptive = None if adaptive is None else AdaptiveClipNorm(plan, adaptive)
        weights = sum(map(math.prod, self._shapes))
        self._grid = (
            Grid.of(plan.clip_norm, plan.noise_multiplier, weights) if plan.secure else None
        )
        run = self._strategy.run
        self._accumulate = _graph(lambda totals, batch: run(self._accumulate_one, (totals, batch)))
        self._complete = _graph(lambda *given: run(self._complete_one, given))
        self._release = _graph(lambda totals, noise: run(self._release_one, (totals, noise)))
        self._nothing = self._nothing_yet()

    def __call__(
        self, microbatches: Iterator[Any], count: int, noise: Any, before_release: Callable
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Runs one step.

        Args:
          microbatches: Yields microbatches.
          count: How many of them make up the step.
          noise: What ``randomness`` gave for this step.
          before_release: Called after the sum is formed and before its result can be seen: the
            place for the ledger entry.

        Returns:
          The numbers of examples, over all replicas, that contributed and that were skipped because
          their gradient was not finite.
        """
        totals, last = self._nothing, None
        for _ in range(count):
            batch = next(microbatches)
            totals, complete = self._accumulate(totals, batch)
            # One microbatch behind, so that devices need not wait to be asked.
            totals = self._completed(totals, last)
            last = batch, complete
        totals = self._completed(totals, last)
        before_release()
        released = self._release(totals, noise)
        examples, non_finite = (self._strategy.experimental_local_results(n)[0] for n in released)
        return examples, non_finite

    def randomness(self, key: NoiseKey, step: int) -> Any:
        """Returns what fixes the noise of a step: its seeds, or its integers on the grid."""
        if self._grid is None:
            own = 0 if self._adaptive is None else 1  # the count's, after the weights'
            return tf.constant(key.seeds(step, len(self._shapes) + own))
        return [
            tf.constant(key.integers(step, i, shape, self._grid.deviation))
            for i, shape in enumerate(self._shapes)
        ]

    def _zeros(self) -> Totals:
        sums = no_sums(self.clipped.forward.trainable)
        return Totals(sums, tf.zeros([]), tf.zeros([]), tf.zeros([]))

    def _nothing_yet(self) -> Totals:
        """Returns zeros, added up over the replicas: what fails must fail before it is spent for.

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
                "The replicas cannot add up their gradients. This happens after another "
                f"{type(self._strategy).__name__} has trained a model in this process: restart it, "
                "create one strategy, and build and train all models in its scope. "
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
        update_metrics(
            self._model, batch.y, part.outputs, batch.sample_weight, part.used, part.losses
        )
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
            return privatize_on_grid(totals.sums, noise, self._grid.step, self.expected_batch_size)
        # The same seeds give the same noise on every replica: it is drawn once, after the sum.
        return privatize(
            totals.sums,
            self._clip_norm if self._adaptive is None else self._adaptive.clip_norm,
            self._noise_multiplier,
            self.expected_batch_size,
            noise,
        )


class AdaptiveClipNorm:
    """Moves the clip norm towards a quantile of the gradient norms (Andrew et al. 2021).

    Args:
      plan: A plan with quantile clipping.
      clip_norm: The optimizer's variable, which saving and checkpoints carry.
    """

    def __init__(self, plan: PrivacyPlan, clip_norm: keras.Variable):
        if not isinstance(plan.clipping, QuantileClipping):
            raise TypeError(f"plan.clipping must be a QuantileClipping, got {plan.clipping!r}.")
        self._quantile, self._rate = plan.clipping.quantile, plan.clipping.learning_rate
        self._count_noise = plan.settings.count_noise
        self._start = plan.clip_norm
        self._batch_size = plan.denominator
        self._variable = clip_norm

    @property
    def clip_norm(self) -> tf.Tensor:
        """The clip norm of the moment."""
        return tf.convert_to_tensor(self._variable.value)

    @property
    def scale(self) -> tf.Tensor:
        """The clip norm of the moment in units of the one it started at."""
        return self.clip_norm / self._start

    def count(self, norms: tf.Tensor, used: tf.Tensor) -> tf.Tensor:
        """Adds up a half for every example under the clip norm and minus a half for the others.

        One example then moves the count by a half only. Examples outside ``used`` add nothing.

        Args:
          norms: ``[B]`` gradient norms.
          used: ``[B]`` bool.
        """
        under = norms <= tf.cast(self.clip_norm, norms.dtype)
        return tf.reduce_sum(tf.where(used, tf.where(under, 0.5, -0.5), 0.0))

    def move(self, count: tf.Tensor, seed: tf.Tensor) -> None:
        """Releases the count with noise, and moves the clip norm by what it shows.

        Args:
          count: The sum of ``count`` over all examples of the step.
          seed: ``[2]`` int64, of noise that nothing else uses.
        """
        noise = self._count_noise * tf.random.stateless_normal([], seed)
        under = (count + noise) / self._batch_size + 0.5  # fraction of the examples
        factor = tf.exp(-self._rate * (under - self._quantile))
        limits = self._start / _FURTHEST, self._start * _FURTHEST
        self._variable.assign(tf.clip_by_value(self.clip_norm * factor, *limits))


def _jit_compile(model: keras.Model) -> bool | str:
    # Keras turns XLA off for whole steps under a strategy; a pure function compiles there too.
    asked = (model.get_compile_config() or {}).get("jit_compile")
    if asked is False or model.run_eagerly:
        return False
    if not all(layer.supports_jit for layer in model._flatten_layers()):
        return False
    return asked or "auto"


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


def _count(examples: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.cast(examples, tf.float32))


def _graph(function: Callable) -> Callable:
    return tf.function(function, autograph=False)
