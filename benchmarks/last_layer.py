"""Times a private full-batch step of a last layer beside what it is made of, and beside peers.

    python -m benchmarks.last_layer --widths=768,1280 --classes=10,100,1000 --output=table.json
    python -m benchmarks.last_layer --stream=/path/with/4/GB

Variants take turns, in another order each round and with a step before the timed one, so that
what else the machine does and what is left in its caches strike all alike; each round gives the
ratio of our step to the faster of the two bare matrix products of that round (TensorFlow's and
NumPy's), and to the faster ordinary gradient. The step is one from weights that are not zero, and
beside it stands the first one, from zero. Peers work in processes and environments of their
own (benchmarks.peers) on the same features, and answer when it is their turn.

`--stream` writes 1.28 million x 1280 float16 features, streams the first and a further private step
over them from disk, says the peak memory of the process, and deletes them.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from absl import app, flags
from tqdm import tqdm

from benchmarks.peers import FOLDER, peer_process

_ROWS = flags.DEFINE_integer("rows", 50_000, "Rows of features.")
_WIDTHS = flags.DEFINE_list("widths", ["768", "1280"], "Columns of features.")
_CLASSES = flags.DEFINE_list("classes", ["10", "100", "1000"], "Classes.")
_ROUNDS = flags.DEFINE_integer("rounds", 7, "Timed turns of every variant.")
_PEERS = flags.DEFINE_list("peers", ["opacus", "jax_privacy"], "Peers to time; empty for none.")
_FOLDER = flags.DEFINE_string("folder", FOLDER, "Where the peers' environments are, or go.")
_OUTPUT = flags.DEFINE_string("output", "", "Where to write the results: JSON, and a table (.md).")
_STREAM = flags.DEFINE_string("stream", "", "Folder to stream a large table from, instead.")

_CLIP = 0.15
_BARE = ("bare_tensorflow", "bare_numpy")
_ORDINARY = ("ordinary_tensorflow", "ordinary_numpy")
Step = Callable[[], float]  # runs one step, returns its seconds


def main(_: list[str]) -> None:
    if _STREAM.value:
        stream(Path(_STREAM.value))
        return
    results = []
    for width in map(int, _WIDTHS.value):
        for classes in map(int, _CLASSES.value):
            results.append(measure(width, classes))
            print(line(results[-1]), flush=True)
            if _OUTPUT.value:
                output = Path(_OUTPUT.value)
                output.write_text(json.dumps(results, indent=1) + "\n")
                output.with_suffix(".md").write_text(as_table(results) + "\n")


def measure(width: int, classes: int) -> dict[str, Any]:
    """Seconds of every variant, and the ratios of the rounds."""
    x, y = table(_ROWS.value, width, classes)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        np.savez(Path(folder) / "table.npz", x=x, y=y, classes=classes, clip=_CLIP)
        steps = own_steps(x, y, classes)
        for name in _PEERS.value:
            table_file = str(Path(folder) / "table.npz")
            peer = peer_process(name, "last_layer", _FOLDER.value, table_file)
            steps[name] = seconds_of(stack.enter_context(peer))
        seconds: dict[str, list[float]] = {name: [] for name in steps}
        for step in steps.values():
            step()  # traces and compiles
        for number in range(_ROUNDS.value):
            for name in random.Random(number).sample(list(steps), len(steps)):
                steps[name]()  # fills caches that the one before it has emptied
                seconds[name].append(steps[name]())
    rounds = [dict(zip(seconds, turn, strict=True)) for turn in zip(*seconds.values(), strict=True)]

    def ratio(over: Callable[[dict[str, float]], float]) -> float:
        return statistics.median(over(turn) for turn in rounds)

    ratios = {
        "first": ratio(lambda t: t["first"] / min(t[name] for name in _BARE)),
        "to_bare": ratio(lambda t: t["private"] / min(t[name] for name in _BARE)),
        "to_ordinary": ratio(lambda t: t["private"] / min(t[name] for name in _ORDINARY)),
        **{name: ratio(functools.partial(_times_ours, name)) for name in _PEERS.value},
    }
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {"width": width, "classes": classes, "seconds": medians, "ratios": ratios}


def _times_ours(name: str, turn: dict[str, float]) -> float:
    return turn[name] / turn["private"]


def table(rows: int, width: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Features float32 `[N, D]` of unit norm and labels int64 `[N]`."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((rows, width), np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x, generator.integers(0, classes, rows)


def own_steps(x: np.ndarray, y: np.ndarray, classes: int) -> dict[str, Step]:
    """Our step, the two products it cannot do without, and an ordinary gradient."""
    import tensorflow as tf

    generator = np.random.default_rng(1)
    kernel = generator.standard_normal((x.shape[1], classes), np.float32)
    residual = generator.standard_normal((len(x), classes), np.float32)
    features, labels = tf.constant(x), tf.constant(y)
    weights, rest = tf.constant(kernel), tf.constant(residual)
    bias = tf.zeros(classes)

    @tf.function
    def products(x: Any, w: Any, r: Any) -> Any:
        return tf.matmul(x, w), tf.matmul(x, r, transpose_a=True)

    @tf.function
    def gradient(w: Any, b: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([w, b])
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, features @ w + b)
            loss = tf.reduce_mean(losses)
        return tape.gradient(loss, [w, b])

    def numpy_gradient() -> tuple[np.ndarray, np.ndarray]:
        logits = x @ kernel
        logits -= logits.max(axis=1, keepdims=True)
        np.exp(logits, out=logits)
        logits /= logits.sum(axis=1, keepdims=True)
        logits[np.arange(len(y)), y] -= 1
        return x.T @ logits / len(x), logits.mean(axis=0)

    return {
        "private": timed(private_step(x, y, classes)),
        "first": timed(private_step(x, y, classes, learning_rate=0.0)),
        "bare_tensorflow": timed(lambda: products(features, weights, rest)[1].numpy()),
        "bare_numpy": timed(lambda: (x @ kernel, x.T @ residual)),
        "ordinary_tensorflow": timed(lambda: gradient(weights, bias)[0].numpy()),
        "ordinary_numpy": timed(numpy_gradient),
    }


def private_step(
    x: Any, y: np.ndarray, classes: int, learning_rate: float = 1.0
) -> Callable[[], Any]:
    """Clipped sum over all rows, noise, entry in the ledger, and a step by SGD.

    Weights begin at zero; at a learning rate of zero every step is a first one.
    """
    import keras

    from tfdp.optimizers import DPSGD
    from tfdp.privacy.noise import NoiseKey
    from tfdp.transfer.clipped_sums import ClippedSums, View
    from tfdp.transfer.feature_table import FeatureTable, as_table
    from tfdp.transfer.passes import Passes
    from tfdp.transfer.release_budget import Release, Spending, whole_budget

    rows = x if isinstance(x, FeatureTable) else as_table(x, y, classes)
    plan = whole_budget(len(rows), 1.0, min(1e-5, 0.5 / len(rows)))
    spending = Spending(plan, [Release("gradient", count=10_000)], NoiseKey.from_entropy())
    sums = ClippedSums(Passes(rows, "none"), View(bias=1.0))
    weights = [keras.Variable(np.zeros(shape)) for shape in ((rows.dim, classes), (classes,))]
    optimizer = DPSGD(
        learning_rate, l2_norm_clip=_CLIP, noise_multiplier=spending.noise_multiplier("gradient")
    )
    optimizer.build(weights)

    def step() -> np.ndarray:
        kernel, bias = map(np.asarray, weights)
        found = sums.gradient(kernel, bias, loss="softmax", clip_norm=_CLIP)
        noisy = spending.release_mean("gradient", found, sensitivity=_CLIP, divisor=len(rows))
        optimizer.apply(noisy, weights)
        return np.asarray(weights[0])

    return step


def seconds_of(peer: Callable[[], tuple[float, float]]) -> Step:
    """A peer's step, without its memory."""
    return lambda: peer()[0]


def timed(call: Callable[[], Any]) -> Step:
    """The call as a step."""

    def step() -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    return step


def line(result: dict[str, Any]) -> str:
    """The result for people."""
    ratios, ours = result["ratios"], result["seconds"]["private"]
    peers = "".join(f", {name} {ratios[name]:.1f} times ours" for name in _PEERS.value)
    return (
        f"{_ROWS.value:,} x {result['width']}, {result['classes']} classes: {ours:.3f} s, "
        f"{ratios['to_bare']:.2f} of two bare products, "
        f"{ratios['to_ordinary']:.2f} of an ordinary gradient, "
        f"{result['seconds']['first']:.3f} s from zero weights{peers}"
    )


def as_table(results: list[dict[str, Any]]) -> str:
    """All results as a table in Markdown; peers in units of our step."""
    peers = list(_PEERS.value)
    head = ["features", "classes", "private step, s", "of two bare products"]
    head += ["of an ordinary gradient", "first step, s", "of two bare products"]
    lines = [[*head, *peers], ["---"] * (7 + len(peers))]
    for result in results:
        ratios = result["ratios"]
        lines.append(
            [
                f"{_ROWS.value:,} x {result['width']}",
                str(result["classes"]),
                f"{result['seconds']['private']:.3f}",
                f"{ratios['to_bare']:.2f}",
                f"{ratios['to_ordinary']:.2f}",
                f"{result['seconds']['first']:.3f}",
                f"{ratios['first']:.2f}",
                *(f"{ratios[name]:.1f}" for name in peers),
            ]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def stream(path: Path, rows: int = 1_280_000, width: int = 1280, shard: int = 40_000) -> None:
    """Private steps over a table that does not fit into the memory it may have."""
    import tensorflow as tf

    from tfdp.transfer.features import FeatureFolder, FeatureWriter

    del tf
    generator = np.random.default_rng(0)
    header = {
        "backbone": {"name": "unknown"},
        "preprocessing": {},
        "dataset": {"name": "made up", "class_names": [str(k) for k in range(1000)]},
        "dtype": "float16",
    }
    with tempfile.TemporaryDirectory(dir=path) as folder:
        writer = FeatureWriter(folder, header)
        writer.begin("train", rows, shard)
        block = generator.standard_normal((shard, width), np.float32).astype(np.float16)
        for _ in tqdm(range(rows // shard), unit="shards", desc="writing"):
            writer.append("train", block, generator.integers(0, 1000, shard))
        size = sum(file.stat().st_size for file in Path(folder).rglob("*.npy"))
        start = time.perf_counter()
        step = private_step(FeatureFolder(folder).table("train"), np.zeros(0), 1000)
        opened = time.perf_counter()
        step()
        first = time.perf_counter()
        step()
        done = time.perf_counter()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            f"{rows:,} x {width} float16 ({size / 2**30:.2f} GiB), 1000 classes: opened in "
            f"{opened - start:.1f} s, the first private step in {first - opened:.1f} s, "
            f"a further one in {done - first:.1f} s, "
            f"peak memory {peak:.2f} GiB"
        )


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    app.run(main)
