"""From a compiled private model and its records to a run of steps."""

from __future__ import annotations

import functools
import math

import keras
import numpy as np
import scipy.stats
import tensorflow as tf

from tfdp.clipping import Batch, ClippedGradient
from tfdp.data import ExampleSource
from tfdp.privacy import PrivacyPlan
from tfdp.privacy.noise import NoiseKey
from tfdp.training.adaptive import AdaptiveClipNorm
from tfdp.training.continuity import check_optimizer_is_own
from tfdp.training.metrics import update_metrics
from tfdp.training.run import PrivateRun, agreed_key
from tfdp.training.state import PrivateState
from tfdp.training.update import PrivateStep
from tfdp.training.usable import check_targets

_MOST_TO_EVALUATE = 256


def rows_to_evaluate(state: PrivateState, asked: int | None, replicas: int) -> int:
    """Returns how many rows all replicas together evaluate at a time.

    As many on each: Keras fails on a first batch that they cannot share evenly.
    """
    default = _MOST_TO_EVALUATE
    if state.plan is not None:
        default = min(default, math.ceil(state.plan.batch_size))
    rows = asked or state.microbatch_size or default
    return math.ceil(rows / replicas) * replicas


def make_run(
    model: keras.Model, source: ExampleSource, steps: int, steps_per_epoch: int
) -> PrivateRun:
    """Returns a run of steps; the first one builds the model and what clips its gradients."""
    state: PrivateState = model._private
    if state.update is None:
        _build(model, source)
        check_optimizer_is_own(model.optimizer, model.trainable_variables)
        state.trainable = [id(v) for v in model.trainable_variables]
        state.update = _make_update(model)
    key = NoiseKey.from_entropy() if state.seed is None else NoiseKey.from_seed(state.seed)
    key = agreed_key(key, model.distribute_strategy)
    rows = state.microbatch_size or _best_microbatch_size(state, source, model.distribute_strategy)
    return PrivateRun(model, source, rows, key, steps, steps_per_epoch, state.units)


def _best_microbatch_size(
    state: PrivateState, source: ExampleSource, strategy: tf.distribute.Strategy
) -> int:
    """Returns how many rows one replica best handles at a time; those of whole units."""
    assert state.plan is not None and state.update is not None  # make_run has seen to it
    each = state.plan.examples_per_user or 1
    x, y, sample_weight, valid = source.fetch(tf.zeros([each], tf.int64), tf.zeros([], tf.int64))
    batch = Batch(x, y, sample_weight, valid, tf.zeros([2], tf.int32))
    drawn, probabilities = _drawn_by_an_update(state.plan)
    rows = drawn * each
    best = state.update.clipped.best_microbatch_size(
        batch, rows, probabilities, strategy.num_replicas_in_sync
    )
    return max(1, best // each) * each


def _drawn_by_an_update(plan: PrivacyPlan) -> tuple[np.ndarray, np.ndarray]:
    """Returns how many records, or persons, a step may draw, and how likely it is."""
    if plan.sampling != "poisson":
        return np.array([math.ceil(plan.batch_size)]), np.ones(1)
    drawn = scipy.stats.binom(plan.num_examples, plan.sampling_probability)
    counts = np.arange(drawn.ppf(1e-9), drawn.isf(1e-9) + 1)
    return counts, drawn.pmf(counts)


def _build(model: keras.Model, source: ExampleSource) -> None:
    """Creates all variables, from the shapes of a batch of two.

    Raises:
      ValueError: Model, loss or metrics cannot be run on such records.
    """
    x, y, _, _ = source.fetch(tf.zeros([2], tf.int64), tf.zeros([], tf.int64))
    with model.distribute_strategy.scope():
        try:
            # Without weights: they shape no variable, and Keras takes fewer forms of them.
            model._symbolic_build(data_batch=(x, y, None))
        except (TypeError, ValueError, tf.errors.OpError) as error:
            inputs, targets = keras.tree.map_structure(
                lambda leaf: None if leaf is None else tuple(leaf.shape[1:]), (x, y)
            )
            raise ValueError(
                f"The model {model.name!r}, its loss and metrics cannot be run on records with x "
                f"of shape {inputs} and y of shape {targets}: {error}"
            ) from error
        if keras.tree.is_nested(y):  # several losses keep metrics, which are variables
            outputs = keras.tree.map_structure(tf.convert_to_tensor, model(x, training=False))
            model._private.loss(y, outputs)
    check_targets(model, source, x)


def _make_update(model: keras.Model) -> PrivateStep:
    state: PrivateState = model._private
    assert state.plan is not None  # fit has seen to it
    clipped = ClippedGradient(
        model,
        state.loss,
        state.plan.clip_norm,
        clipping=state.plan.clipping,
        engine=state.engine,
        with_outputs=model._compile_metrics is not None,
        jit_compile=_jit_compile(model),
        examples_per_user=state.plan.examples_per_user or 1,
        public_examples=state.public_examples,
    )
    moving = model.optimizer.clip_norm
    return PrivateStep(
        model,
        clipped,
        state.plan.denominator,
        functools.partial(update_metrics, model),
        secure=state.plan.secure,
        adaptive=None if moving is None else AdaptiveClipNorm(state.plan, moving),
    )


def _jit_compile(model: keras.Model) -> bool | str:
    # Keras turns XLA off for whole steps under a strategy; a pure function compiles there too.
    asked = (model.get_compile_config() or {}).get("jit_compile")
    if asked is False or model.run_eagerly:
        return False
    if not all(layer.supports_jit for layer in model._flatten_layers()):
        return False
    return asked or "auto"
