"""Times a clipped gradient sum beside an ordinary gradient of the same model, and beside peers.

    python -m benchmarks.step_time --models=captioner,vit --batch_sizes=16,64 --output=table.json
    python -m benchmarks.step_time --models=captioner --batch_sizes=64 --peers=opacus,jax_privacy

Every model and batch size runs in a process of its own. Within it the variants take turns, so that
other load on the machine slows all of them alike, and each round gives one ratio to the best
ordinary step of that round. Peers answer in processes and environments of their own
(benchmarks.peers) when it is their turn. Peak memory is that of a further process per variant. The
floor is the work of all matrix products and convolutions relative to the ordinary step's.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from absl import app, flags

from benchmarks.peers import FOLDER, PEERS, peer_process

_MODELS = flags.DEFINE_list("models", ["captioner"], "Workloads of benchmarks.models.")
_BATCHES = flags.DEFINE_list("batch_sizes", ["16", "64"], "Examples in a batch.")
_VARIANTS = flags.DEFINE_list(
    "variants", ["ordinary", "ordinary_xla", "single_pass"], "What to time; see benchmarks.steps."
)
_PEERS = flags.DEFINE_list("peers", [], f"Peers to time too, of {', '.join(PEERS)}.")
_FOLDER = flags.DEFINE_string("folder", FOLDER, "Where the peers' environments are, or go.")
_ROUNDS = flags.DEFINE_integer("rounds", 7, "Timed turns of every variant.")
_MEMORY = flags.DEFINE_bool("memory", True, "Whether to measure peak memory too.")
_OUTPUT = flags.DEFINE_string("output", "", "Where to write the results: JSON, and a table (.md).")
_WORKER = flags.DEFINE_string("worker", "", "Internal: 'time' or 'memory'.")


def main(_: list[str]) -> None:
    if _WORKER.value:
        print("RESULT " + json.dumps(_work(_MODELS.value[0], int(_BATCHES.value[0]))))
        return
    results = []
    for model in _MODELS.value:
        for count in _BATCHES.value:
            results.append(_measure(model, count))
            print(_table(results[-1:]), flush=True)
            if _OUTPUT.value:
                output = Path(_OUTPUT.value)
                output.write_text(json.dumps(results, indent=1) + "\n")
                output.with_suffix(".md").write_text(_table(results) + "\n")


def _measure(model: str, count: str) -> dict[str, Any]:
    result = {
        "model": model,
        "examples": int(count),
        **_child(model, count, _VARIANTS.value, "time"),
    }
    if _MEMORY.value:
        for variant in _VARIANTS.value:
            found = _child(model, count, [variant], "memory")
            result["peak_gib"][variant] = found["peak_gib"][variant]
    return result


def _child(model: str, count: str, variants: list[str], worker: str) -> dict[str, Any]:
    peers = _PEERS.value if worker == "time" else []
    command = [
        sys.executable, "-m", "benchmarks.step_time", f"--models={model}",
        f"--batch_sizes={count}", f"--variants={','.join(variants)}", f"--worker={worker}",
        f"--rounds={_ROUNDS.value}", f"--peers={','.join(peers)}", f"--folder={_FOLDER.value}",
    ]  # fmt: skip
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    output = subprocess.run(
        command, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    line = next(line for line in output.splitlines() if line.startswith("RESULT "))
    return json.loads(line.removeprefix("RESULT "))


def _work(model: str, count: int) -> dict[str, Any]:
    from benchmarks.steps import make_step

    steps, first = {}, {}
    for variant in _VARIANTS.value:
        start = time.perf_counter()
        steps[variant] = make_step(variant, model, count)
        steps[variant].run()
        first[variant] = time.perf_counter() - start
    if _WORKER.value == "memory":
        for step in steps.values():
            step.run()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        return {"peak_gib": dict.fromkeys(steps, peak)}
    with contextlib.ExitStack() as stack:
        peers = {
            name: stack.enter_context(
                peer_process(name, "step", _FOLDER.value, *_peer_arguments(name, model, count))
            )
            for name in _PEERS.value
        }
        peaks = {name: peer()[1] for name, peer in peers.items()}  # traces and compiles
        seconds: dict[str, list[float]] = {name: [] for name in (*steps, *peers)}
        for _ in range(_ROUNDS.value):
            for name, step in steps.items():
                start = time.perf_counter()
                step.run()
                seconds[name].append(time.perf_counter() - start)
            for name, peer in peers.items():
                found, peaks[name] = peer()
                seconds[name].append(found)
    ordinary = [seconds[v] for v in seconds if v.startswith("ordinary")]
    best = [min(turn) for turn in zip(*ordinary, strict=True)]
    least = next(step.work for name, step in steps.items() if name.startswith("ordinary"))
    return {
        "seconds": {v: statistics.median(s) for v, s in seconds.items()},
        "ratio": {
            v: statistics.median(a / b for a, b in zip(s, best, strict=True))
            for v, s in seconds.items()
        },
        "examples_per_second": {v: count / statistics.median(s) for v, s in seconds.items()},
        "first_step_seconds": first,
        "floor": {v: step.work.flops / least.flops for v, step in steps.items() if step.work.whole},
        "gflops": {v: step.work.flops / 1e9 for v, step in steps.items() if step.work.whole},
        "peak_gib": peaks,
    }


def _peer_arguments(peer: str, model: str, count: int) -> list[str]:
    """Peers in Keras take the captioner of plain layers; jax_privacy is fastest row by row."""
    plain = model in ("captioner", "quickstart") and peer != "opacus"
    rest = ["1"] if peer == "jax_privacy" else []
    return [f"plain_{model}" if plain else model, str(count), *rest]


def _table(results: list[dict[str, Any]]) -> str:
    lines = [
        "| model | batch | variant | time | floor | examples/s | first step, s | peak GiB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        for variant, ratio in result["ratio"].items():
            cells = [
                result["model"], result["examples"], variant, f"{ratio:.2f}",
                _cell(result["floor"].get(variant), ".2f"),
                f"{result['examples_per_second'][variant]:.1f}",
                _cell(result["first_step_seconds"].get(variant), ".1f"),
                _cell(result["peak_gib"].get(variant), ".2f"),
            ]  # fmt: skip
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def _cell(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


if __name__ == "__main__":
    app.run(main)
