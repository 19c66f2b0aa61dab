"""From a compiled private model and its records to a run of updates."""

from __future__ import annotations

import functools
import math

import keras
import tensorflow as tf

from tfdp.clipping import ClippedGradient
from tfdp.data import RecordSource
from tfdp.privacy.noise import NoiseKey
from tfdp.training.adaptive import AdaptiveClipNorm, clipping_of
from tfdp.training.continuity import check_optimizer_is_own
from tfdp.training.metrics import update_metrics
from tfdp.training.run import PrivateRun, agreed_key
from tfdp.training.state import PrivateState
from tfdp.training.update import PrivateUpdate
from tfdp.training.usable import check_targets

DEFAULT_MICROBATCH_SIZE = 256


def rows_at_a_time(state: PrivateState, asked: int | None = None) -> int:
    """Returns how many rows one replica handles at a time."""
    default = DEFAULT_MICROBATCH_SIZE
    if state.plan is not None:
        each = state.plan.records_per_unit or 1
        default = max(each, min(default, math.ceil(state.plan.batch_size) * each))
    return asked or state.microbatch_size or default


def make_run(
    model: keras.Model, source: RecordSource, updates: int, updates_per_epoch: int
) -> PrivateRun:
    """Returns a run of updates; the first one builds the model and what clips its gradients."""
    state: PrivateState = model._private
    if state.update is None:
        _build(model, source)
        check_optimizer_is_own(model.optimizer, model.trainable_variables)
        state.trainable = [id(v) for v in model.trainable_variables]
        state.update = _make_update(model)
    key = NoiseKey.from_entropy() if state.seed is None else NoiseKey.from_seed(state.seed)
    key = agreed_key(key, model.distribute_strategy)
    rows = rows_at_a_time(state)
    return PrivateRun(model, source, rows, key, updates, updates_per_epoch, state.units)


def _build(model: keras.Model, source: RecordSource) -> None:
    """Creates all variables, from the shapes of a batch of two."""
    x, y, _, _ = source.fetch(tf.zeros([2], tf.int64), tf.zeros([], tf.int64))
    with model.distribute_strategy.scope():
        # Without weights: they shape no variable, and Keras takes fewer forms of them.
        model._symbolic_build(data_batch=(x, y, None))
        if keras.tree.is_nested(y):  # several losses keep metrics, which are variables
            outputs = keras.tree.map_structure(tf.convert_to_tensor, model(x, training=False))
            model._private.loss(y, outputs)
    check_targets(model, source, x)


def _make_update(model: keras.Model) -> PrivateUpdate:
    state: PrivateState = model._private
    assert state.plan is not None  # fit has seen to it
    clipped = ClippedGradient(
        model,
        state.loss,
        clipping_of(state.plan),
        engine=state.engine,
        with_outputs=model._compile_metrics is not None,
        jit_compile=_may_jit(model),
        records_per_unit=state.plan.records_per_unit or 1,
        public_examples=state.public_examples,
    )
    moving = model.optimizer.clip_norm
    return PrivateUpdate(
        model,
        clipped,
        state.plan.denominator,
        functools.partial(update_metrics, model),
        secure=state.plan.secure,
        adaptive=None if moving is None else AdaptiveClipNorm(state.plan, moving),
    )


def _may_jit(model: keras.Model) -> bool:
    # Keras turns XLA off for whole steps under a strategy; a pure function compiles there too.
    asked = model.get_compile_config() or {}
    if asked.get("jit_compile") is False or model.run_eagerly:
        return False
    return all(layer.supports_jit for layer in model._flatten_layers())
