"""Times a clipped gradient sum beside an ordinary gradient of the same model.

    python -m benchmarks.step_time --models=captioner,vit --batch_sizes=16,64 --output=table.json

Every model and batch size runs in a process of its own; within it the variants take turns, so that
what else the machine does strikes all alike, and each round gives one ratio to the best ordinary
step of that round. Peak memory is that of a further process per variant.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from absl import app, flags

_MODELS = flags.DEFINE_list("models", ["captioner"], "Workloads of benchmarks.models.")
_BATCHES = flags.DEFINE_list("batch_sizes", ["16", "64"], "Rows in a batch.")
_VARIANTS = flags.DEFINE_list(
    "variants", ["ordinary", "ordinary_xla", "single_pass"], "What to time; see _step."
)
_ROUNDS = flags.DEFINE_integer("rounds", 7, "Timed turns of every variant.")
_MEMORY = flags.DEFINE_bool("memory", True, "Whether to measure peak memory too.")
_OUTPUT = flags.DEFINE_string("output", "", "Where to write the results as JSON.")
_WORKER = flags.DEFINE_string("worker", "", "Internal: 'time' or 'memory'.")


def main(_: list[str]) -> None:
    if _WORKER.value:
        print("RESULT " + json.dumps(_work(_MODELS.value[0], int(_BATCHES.value[0]))))
        return
    results = []
    for model in _MODELS.value:
        for rows in _BATCHES.value:
            results.append(_measure(model, rows))
            _print(results[-1])
            if _OUTPUT.value:
                with open(_OUTPUT.value, "w") as file:
                    json.dump(results, file, indent=1)


def _measure(model: str, rows: str) -> dict[str, Any]:
    result = {"model": model, "rows": int(rows), **_child(model, rows, _VARIANTS.value, "time")}
    if _MEMORY.value:
        result["peak_gib"] = {
            variant: _child(model, rows, [variant], "memory")["peak_gib"]
            for variant in _VARIANTS.value
        }
    return result


def _child(model: str, rows: str, variants: list[str], worker: str) -> dict[str, Any]:
    command = [
        sys.executable, "-m", "benchmarks.step_time", f"--models={model}",
        f"--batch_sizes={rows}", f"--variants={','.join(variants)}", f"--worker={worker}",
        f"--rounds={_ROUNDS.value}",
    ]  # fmt: skip
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    output = subprocess.run(
        command, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    line = next(line for line in output.splitlines() if line.startswith("RESULT "))
    return json.loads(line.removeprefix("RESULT "))


def _work(model: str, rows: int) -> dict[str, Any]:
    steps, compile_seconds = {}, {}
    for variant in _VARIANTS.value:
        start = time.perf_counter()
        steps[variant] = _step(variant, model, rows)
        steps[variant]()
        compile_seconds[variant] = time.perf_counter() - start
    if _WORKER.value == "memory":
        for step in steps.values():
            step()
        return {"peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}
    seconds: dict[str, list[float]] = {variant: [] for variant in steps}
    for _ in range(_ROUNDS.value):
        for variant, step in steps.items():
            start = time.perf_counter()
            step()
            seconds[variant].append(time.perf_counter() - start)
    ordinary = [seconds[v] for v in seconds if v.startswith("ordinary")]
    best = [min(turn) for turn in zip(*ordinary, strict=True)]
    return {
        "seconds": {v: statistics.median(s) for v, s in seconds.items()},
        "ratio": {
            v: statistics.median(a / b for a, b in zip(s, best, strict=True))
            for v, s in seconds.items()
        },
        "examples_per_second": {v: rows / statistics.median(s) for v, s in seconds.items()},
        "compile_seconds": compile_seconds,
    }


def _step(variant: str, model_name: str, rows: int) -> Callable[[], Any]:
    """Returns a function that runs one step.

    Variants: "ordinary" and "ordinary_xla" give the gradient of the mean loss; the name of an
    engine gives the clipped sum, with "_eager" at its end without XLA.
    """
    import tensorflow as tf

    from benchmarks.models import WORKLOADS
    from tfdp.clipping import Batch, ClippedGradient, per_example_loss
    from tfdp.clipping.forward import Forward

    workload = WORKLOADS[model_name]()
    model = workload.build()
    x, y = tf.nest.map_structure(tf.constant, workload.batch(rows))
    model(x)
    loss = per_example_loss(workload.loss)
    batch = Batch(x, y, None, tf.ones([rows], tf.bool), tf.constant([0, 1]))

    if variant.startswith("ordinary"):
        forward = Forward(model, loss)

        def gradient(weights, state, batch):
            import keras

            with tf.GradientTape() as tape:
                tape.watch(weights)
                with keras.StatelessScope(forward.mapping(weights, state, batch.seed)):
                    losses, _ = forward.losses(batch.x, batch.y, None)
                mean = tf.reduce_mean(losses)
            return tape.gradient(mean, weights)

        run = tf.function(gradient, jit_compile=variant.endswith("_xla"), autograph=False)
    else:
        engine = variant.removesuffix("_eager")
        clipped = ClippedGradient(
            model, loss, 1.0, engine, jit_compile=not variant.endswith("_eager")
        )
        forward = clipped.forward
        run = tf.function(lambda *args: clipped(*args).sums, autograph=False)
    weights = [tf.identity(v.value) for v in forward.trainable]
    state = [tf.identity(v.value) for v in forward.state]

    def step():
        for leaf in run(weights, state, batch):
            last = leaf
        return tf.convert_to_tensor(last).numpy()

    return step


def _print(result: dict[str, Any]) -> None:
    print(f"{result['model']}, batch {result['rows']}")
    for variant in result["seconds"]:
        memory = result.get("peak_gib", {}).get(variant)
        print(
            f"  {variant:16} {result['ratio'][variant]:6.2f}x "
            f"{result['examples_per_second'][variant]:8.1f} ex/s "
            f"compile {result['compile_seconds'][variant]:5.1f} s"
            + (f"  {memory:.2f} GiB" if memory else ""),
            flush=True,
        )


if __name__ == "__main__":
    app.run(main)
