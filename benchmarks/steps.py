"""The steps that are timed: ordinary gradients, and clipped sums by our engines."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from benchmarks.floor import Work, work
from benchmarks.models import WORKLOADS
from tfdp.clipping import Batch, ClippedGradient, per_example_loss
from tfdp.clipping.factors import added, no_sums
from tfdp.clipping.forward import Forward


class Step(NamedTuple):
    """``run`` runs one step to its end; ``work`` is what its products amount to."""

    run: Callable[[], Any]
    work: Work


def make_step(variant: str, model_name: str, count: int) -> Step:
    """Traces a step.

    Args:
      variant: "ordinary" and "ordinary_xla" give the gradient of the mean loss; the name of an
        engine gives the clipped sum as training does by default; with "-whole" after it in one
        microbatch, with "-xla" or "-eager" with or without XLA.
      model_name: Of ``WORKLOADS``.
      count: Examples in the batch.
    """
    workload = WORKLOADS[model_name]()
    model = workload.build()
    x, y = tf.nest.map_structure(tf.constant, workload.batch(count))
    model(tf.nest.map_structure(lambda leaf: leaf[:1], x))
    loss = per_example_loss(workload.loss)
    batch = Batch(x, y, None, tf.ones([count], tf.bool), tf.constant([0, 1]))
    if variant.startswith("ordinary"):
        return _ordinary(Forward(model, loss), batch, compiled=variant.endswith("_xla"))
    engine, *options = variant.split("-")
    jit_compile = "xla" in options or ("auto" if "eager" not in options else False)
    clipped = ClippedGradient(model, loss, 1.0, engine=engine, jit_compile=jit_compile)
    size = count if "whole" in options else clipped.best_microbatch_size(batch, [count])
    return _private(clipped, batch, size)


def _ordinary(forward: Forward, batch: Batch, compiled: bool) -> Step:
    @tf.function(jit_compile=compiled, autograph=False)
    def gradient(weights, state, batch):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            with keras.StatelessScope(forward.mapping(weights, state, batch.seed)):
                losses, _ = forward.losses(batch.x, batch.y, None)
            mean = tf.reduce_mean(losses)
        return [mean, *(tf.convert_to_tensor(g) for g in tape.gradient(mean, weights))]

    values = _values(forward)
    done = gradient.get_concrete_function(*values, batch)
    return Step(lambda: gradient(*values, batch)[-1].numpy(), work(done.graph))


def _private(clipped: ClippedGradient, batch: Batch, size: int) -> Step:
    @tf.function(autograph=False)
    def accumulate(totals, weights, state, batch):
        part, complete = clipped.attempt(weights, state, batch)
        return added(totals, part.sums), complete

    values = _values(clipped.forward)
    nothing = no_sums(values[0])
    parts = _parts(batch, size)
    done = accumulate.get_concrete_function(nothing, *values, parts[0])

    def run() -> Any:
        totals = nothing
        for part in parts:
            totals, _ = accumulate(totals, *values, part)
        return totals[-1].numpy()

    once = work(done.graph)
    times = len(parts)
    return Step(run, Work(once.flops * times, once.bytes * times, once.whole))


def _values(forward: Forward) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    weights = [tf.identity(v.value) for v in forward.trainable]
    return weights, [tf.identity(v.value) for v in forward.state]


def _parts(batch: Batch, size: int) -> list[Batch]:
    """Splits a batch, and fills up its last part with padding."""
    count = batch.mask.shape[0]

    def cut(leaf: tf.Tensor, start: int) -> tf.Tensor:
        part = leaf[start : start + size]
        return tf.pad(part, [[0, size - len(part)]] + [[0, 0]] * (part.shape.rank - 1))

    fields = (batch.x, batch.y, batch.mask)
    return [
        Batch(x, y, None, mask, batch.seed)
        for start in range(0, count, size)
        for x, y, mask in [tf.nest.map_structure(functools.partial(cut, start=start), fields)]
    ]
