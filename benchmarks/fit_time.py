"""Times a step of `fit` beside a step of Keras's own `fit` on the same model and data.

    python -m benchmarks.fit_time --models=digits,mlp --batch_sizes=256 --output=table.md

What a step costs beside its clipped sum: drawing and fetching its examples, padding, noise, the
ledger, metrics, epsilon. It weighs most where a model is small. The two take turns in one process,
a whole call of `fit` each, with equal batches on average.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import keras
from absl import app, flags

import tfdp
from benchmarks.models import WORKLOADS, Workload

_MODELS = flags.DEFINE_list("models", ["digits", "mlp"], "Workloads of benchmarks.models.")
_BATCHES = flags.DEFINE_list("batch_sizes", ["256"], "Rows in a batch, on average.")
_UPDATES = flags.DEFINE_integer("steps", 100, "Updates in a call of fit.", lower_bound=10)
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Calls of fit of each kind.", lower_bound=1)
_OUTPUT = flags.DEFINE_string("output", "", "Where to write the table.")

_BATCHES_IN_DATA = 20


class _Clock(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._began = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seconds.append(time.perf_counter() - self._began)


def main(_: list[str]) -> None:
    lines = [
        "| model | batch | Keras, ms | tfdp, ms | ratio | first, Keras, s | first, tfdp, s |",
        "|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines))
    for model in _MODELS.value:
        for rows in map(int, _BATCHES.value):
            lines.append(_row(model, rows))
            print(lines[-1], flush=True)
    if _OUTPUT.value:
        Path(_OUTPUT.value).write_text("\n".join(lines) + "\n")


def _row(name: str, rows: int) -> str:
    workload = WORKLOADS[name]()
    x, y = workload.batch(_BATCHES_IN_DATA * rows)
    turns = [
        (_keras(workload, x, y, rows), _private(workload, x, y, rows)) for _ in range(_ROUNDS.value)
    ]
    ours, theirs = ([1e3 * _typical(turn[i]) for turn in turns] for i in (1, 0))
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    first = [statistics.median(turn[i][0] for turn in turns) for i in (0, 1)]
    times = f"{statistics.median(theirs):.1f} | {statistics.median(ours):.1f} | {ratio:.2f}"
    return f"| {name} | {rows} | {times} | {first[0]:.1f} | {first[1]:.1f} |"


def _typical(seconds: list[float]) -> float:
    """The mean, so that what is done now and then counts, without the beginning."""
    return statistics.fmean(seconds[5:])


def _keras(workload: Workload, x: Any, y: Any, rows: int) -> list[float]:
    model = workload.build()
    model.compile(keras.optimizers.SGD(0.01), workload.loss)
    return _timed(model, x, y, batch_size=rows, steps_per_epoch=_UPDATES.value)


def _private(workload: Workload, x: Any, y: Any, rows: int) -> list[float]:
    plan = tfdp.PrivacyPlan(
        _BATCHES_IN_DATA * rows, rows, _UPDATES.value, 1.0, noise_multiplier=1.0, delta=1e-6
    )
    model = tfdp.make_private(workload.build())
    model.compile(tfdp.optimizers.DPSGD(0.01, privacy=plan), workload.loss)
    return _timed(model, x, y, steps_per_epoch=_UPDATES.value)


def _timed(model: keras.Model, x: Any, y: Any, **settings: Any) -> list[float]:
    clock = _Clock()
    model.fit(x, y, verbose=0, callbacks=[clock], **settings)
    return clock.seconds


if __name__ == "__main__":
    app.run(main)
