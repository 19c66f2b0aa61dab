"""The steps of a run, one after the other, with the ledger, the logs and warnings."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.data import ExampleSource
from tfdp.privacy import Ledger, PrivacyPlan
from tfdp.privacy.accounting import epsilon
from tfdp.training.compiled import Compiled, Progress
from tfdp.training.microbatches import MicrobatchStream
from tfdp.training.run import Run
from tfdp.training.validation import check_trainable

_WATCHED = 8  # values of every weight


def private_steps(
    model: keras.Model, compiled: Compiled, run: Run, stream: MicrobatchStream
) -> Iterator[dict[str, Any]]:
    """Makes the steps of a run, each entered in the ledger before its result can be seen.

    Args:
      model: The ``DPModel``.
      compiled: What its ``compile`` fixed.
      run: What to execute.
      stream: The microbatches of its steps.

    Yields:
      The logs of the epoch so far, after every ``steps_per_execution`` steps.

    Raises:
      ValueError: A callback put back other weights, or froze some.
    """
    if compiled.optimizer.iterations.numpy() != run.first_step:
        raise ValueError(
            "A callback restored other weights when training began, but not the ledger of "
            "what was spent on them. Use tfdp.training.CheckpointEvery, which keeps both, and "
            "call its restore() before fit()."
        )
    progress, ledger, settings = compiled.progress, compiled.ledger, run.plan.settings
    noise = run.key.child("noise")
    epoch, weights = _Epoch(progress, stream.source), _WeightWatch(model.trainable_variables)
    done = 0
    while done < run.epochs.steps:
        check_trainable(model, run.step.trainable)
        weights.check()
        left_in_epoch = run.epochs.steps_each - done % run.epochs.steps_each
        asked = model.steps_per_execution
        at_once = min(
            asked if isinstance(asked, int) else 1, left_in_epoch, run.epochs.steps - done
        )
        for step in range(run.first_step + done, run.first_step + done + at_once):
            # With a fixed seed, a run that goes on from a checkpoint makes the steps that a crash
            # took away again, as the very same releases; the ledger knows them by these two.
            stream_name, number = (progress.stream, step) if noise.fixed else (None, None)
            counts = run.step(
                stream,
                stream.count(step),
                run.step.randomness(noise, step),
                before_release=functools.partial(
                    ledger.record, settings, stream=stream_name, step=number
                ),
            )
            progress.add(*counts)
            progress.next_step = step + 1
        done += at_once
        weights.remember()
        logs = {**epoch.metrics(model), **_epsilon(run.plan, ledger)}
        clip_norm = compiled.optimizer.adaptive_clip_norm
        if clip_norm is not None:
            logs["clip_norm"] = float(clip_norm.numpy())
        if at_once == left_in_epoch or done == run.epochs.steps:
            epoch.end()
        yield logs


def _epsilon(plan: PrivacyPlan, ledger: Ledger) -> dict[str, float]:
    """Returns the privacy spent so far: a valid upper bound, cheap enough for every step.

    Under one plan it meets the plan's final figure at the last step. Where the ledger holds
    other settings too, it is the Renyi figure of all of them together. There is none without a
    delta.
    """
    if plan.delta is None:
        return {}
    spent = ledger.segments()
    if all(segment.settings == plan.settings for segment in spent):
        return {"epsilon": plan.epsilon_bound(ledger.steps)}
    return {"epsilon": epsilon(spent, plan.delta, "rdp").epsilon}


class _Epoch:
    """Whether the steps of an epoch use any of the examples that they draw."""

    def __init__(self, progress: Progress, source: ExampleSource):
        self._progress, self._source = progress, source
        self._used, self._skipped = int(progress.examples), int(progress.non_finite)

    def metrics(self, model: keras.Model) -> dict[str, Any]:
        """Returns the epoch's metrics; NaN where no example that was drawn could be used.

        Keras would show zeros there. Steps that drew nothing are no sign of a fault and do.
        """
        # Keras's means of the losses of single outputs stand at zero: only evaluation fills them.
        empty = {metric.name for metric in model._compile_loss.metrics}
        metrics = model.get_metrics_result()
        metrics = {name: value for name, value in metrics.items() if name not in empty}
        progress = self._progress
        if int(progress.examples) > self._used or int(progress.non_finite) == self._skipped:
            return metrics
        return keras.tree.map_structure(lambda _: math.nan, metrics)

    def end(self) -> None:
        """Warns, whoever trains and holds the data, if none of the epoch's examples was used."""
        used, skipped = int(self._progress.examples), int(self._progress.non_finite)
        not_finite, unreadable = skipped - self._skipped, self._source.bad_records
        if used == self._used and (not_finite or unreadable):
            why = f"the loss or gradient of {not_finite} examples was not finite"
            if unreadable:
                why += f"; unreadable records so far: {unreadable}"
            warnings.warn(
                f"No example was used in a whole epoch, and its steps spent privacy: {why}. Check "
                "labels (from 0 on, below the width of the output), inputs, sample weights and "
                "the model's weights for NaN and for values out of range.",
                stacklevel=2,
            )
        self._used, self._skipped = used, skipped


class _WeightWatch:
    """Warns once when weights are not those that the last step left.

    A callback may restore or average weights, which spends no privacy; but the guarantee does not
    cover weights that it computes from private examples. The check is against mistakes and not
    against intent, so it compares only a few values of every weight.
    """

    def __init__(self, variables: Sequence[keras.Variable]):
        self._variables = [variable for variable in variables if math.prod(variable.shape)]
        self._values = tf.function(self._some_values, autograph=False)
        self._left: tf.Tensor | None = None
        self._warned = False

    def remember(self) -> None:
        """Notes the weights that a step left."""
        if not self._warned:
            self._left = self._values()

    def check(self) -> None:
        """Warns if they are others by now."""
        if self._left is None or self._warned:
            return
        moved = (tf.abs(self._values() - self._left) > 0).numpy()  # NaN moves nowhere
        if moved.any():
            self._warned = True
            first = self._variables[int(np.flatnonzero(moved.any(axis=1))[0])]
            warnings.warn(
                "Something other than the optimizer, such as a callback, changed weights between "
                f"two steps ({first.path} among them). If the new values come from private "
                "examples, the guarantee does not cover them.",
                stacklevel=2,
            )

    def _some_values(self) -> tf.Tensor:
        """Returns values of the weights, evenly spaced: ``[weights, _WATCHED]`` float32."""

        def some(variable: keras.Variable) -> tf.Tensor:
            values = tf.reshape(tf.convert_to_tensor(variable.value), [-1])
            places = np.linspace(0, values.shape[0] - 1, _WATCHED).astype(np.int32)
            return tf.cast(tf.gather(values, places), tf.float32)

        return tf.stack([some(variable) for variable in self._variables])
