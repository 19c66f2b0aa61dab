"""The steps that are timed: ordinary gradients, and clipped sums by our engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from benchmarks.floor import Work, work
from benchmarks.models import WORKLOADS
from tfdp.clipping import Batch, ClippedGradient, per_example_loss
from tfdp.clipping.forward import Forward


class Step(NamedTuple):
    """``run`` runs one step to its end; ``work`` is what its products amount to."""

    run: Callable[[], Any]
    work: Work


def make_step(variant: str, model_name: str, rows: int) -> Step:
    """Traces a step.

    Args:
      variant: "ordinary" and "ordinary_xla" give the gradient of the mean loss; the name of an
        engine gives the clipped sum, with "_halves" at its end by two microbatches, with "_eager"
        without XLA.
      model_name: Of ``WORKLOADS``.
      rows: Examples.
    """
    workload = WORKLOADS[model_name]()
    model = workload.build()
    x, y = tf.nest.map_structure(tf.constant, workload.batch(rows))
    model(tf.nest.map_structure(lambda leaf: leaf[:1], x))
    loss = per_example_loss(workload.loss)
    batch = Batch(x, y, None, tf.ones([rows], tf.bool), tf.constant([0, 1]))
    forward = Forward(model, loss)
    if variant.startswith("ordinary"):
        run = _ordinary(forward, compiled=variant.endswith("_xla"))
    else:
        run = _private(variant, model, loss, rows)
    weights = [tf.identity(v.value) for v in forward.trainable]
    state = [tf.identity(v.value) for v in forward.state]
    done = run.get_concrete_function(weights, state, batch)
    return Step(lambda: run(weights, state, batch)[-1].numpy(), work(done.graph))


def _ordinary(forward: Forward, compiled: bool) -> Any:
    @tf.function(jit_compile=compiled, autograph=False)
    def gradient(weights, state, batch):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            with keras.StatelessScope(forward.mapping(weights, state, batch.seed)):
                losses, _ = forward.losses(batch.x, batch.y, None)
            mean = tf.reduce_mean(losses)
        return [mean, *(tf.convert_to_tensor(g) for g in tape.gradient(mean, weights))]

    return gradient


def _private(variant: str, model: keras.Model, loss: Callable, rows: int) -> Any:
    engine = variant.removesuffix("_halves").removesuffix("_eager")
    clipped = ClippedGradient(model, loss, 1.0, engine, jit_compile="_eager" not in variant)
    size = rows // 2 if variant.endswith("_halves") else rows

    @tf.function(autograph=False)
    def sums(weights, state, batch):
        def part(start: int) -> list[tf.Tensor]:
            own = tf.nest.map_structure(
                lambda leaf: None if leaf is None else leaf[start : start + size],
                batch._replace(seed=None),
            )
            return clipped(weights, state, own._replace(seed=batch.seed)).sums

        totals = part(0)
        for start in range(size, rows, size):
            with tf.control_dependencies(totals):  # one after the other, as in training
                totals = [a + b for a, b in zip(totals, part(start), strict=True)]
        return totals

    return sums
