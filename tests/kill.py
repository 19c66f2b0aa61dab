"""Kills a real run of launch.train_captioner at random moments until it is done.

    python -m tests.kill [--kills=20] [--seed=0]

A run with a fixed seed is made twice: once in peace, and once killed with SIGKILL over and over
and started again by the same command. Both must end with the same weights, the same count of
steps and the same counts of examples; the ledger must never be behind what a checkpoint or the
progress bar has shown. Takes about half a minute a kill. The suite has a faster form:
tests/training/test_killed.py.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

from tests.build_file import ROOT
from tfdp.privacy import Ledger, verify

STEPS = 60
FLAGS = (
    "--config=configs/quickstart.py",
    "--config.privacy.batch_size=256",
    f"--config.privacy.steps={STEPS}",
    "--config.model.encoder_width=16",
    "--config.model.encoder_depth=1",
    "--config.model.decoder_width=16",
    "--config.model.decoder_depth=1",
    "--config.model.max_length=6",  # cuts captions
    "--config.training.microbatch_size=64",
    "--config.training.checkpoint_seconds=0.5",
    "--config.training.seed=3",
    "--config.optimizer.warmup_steps=1",
    "--config.evaluation.probe_examples=120",
    "--config.evaluation.examples=256",
    "--config.evaluation.shots=(1,)",
    "--config.evaluation.draws=1",
)


def start(workdir: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "launch.train_captioner", *FLAGS, f"--workdir={workdir}"]
    log = workdir.with_suffix(".log").open("ab")
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)


def finish(workdir: Path) -> None:
    if start(workdir).wait() != 0:
        sys.exit(workdir.with_suffix(".log").read_text()[-3000:])


def counted(workdir: Path) -> int:
    path = workdir / "ledger.jsonl"
    return Ledger.read(path).steps if path.exists() else 0


def kill_at(workdir: Path, delay: float, after_step: bool) -> float:
    """Kills a new start after a delay, counted from its start or from its first new step."""
    before, begun = counted(workdir), time.monotonic()
    process = start(workdir)
    while after_step and counted(workdir) == before and process.poll() is None:
        time.sleep(0.01)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return time.monotonic() - begun


def seen(workdir: Path) -> int:
    """The highest step whose result was shown: by the latest checkpoint, or on the screen."""
    path = tf.train.latest_checkpoint(workdir / "checkpoints")
    saved = int(path.rsplit("-", 1)[1]) if path else 0
    log = workdir.with_suffix(".log").read_text(errors="replace")
    bars = re.findall(rf"\b(\d+)/{STEPS} ", log)
    return max([saved, *map(int, bars)])


def weights(workdir: Path) -> dict[str, np.ndarray]:
    """Everything in the last checkpoint but the ledger."""
    reader = tf.train.load_checkpoint(tf.train.latest_checkpoint(workdir / "checkpoints"))
    names = [n for n in reader.get_variable_to_shape_map() if n.startswith(("model", "optimizer"))]
    return {name: reader.get_tensor(name) for name in names}


def records(workdir: Path) -> dict:
    """What the report says of the private examples that were met."""
    return json.loads((workdir / "privacy_report.json").read_text())["counts"]


def main(kills: int, seed: int) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        peace, war = Path(folder) / "peace", Path(folder) / "war"
        begun = time.monotonic()
        finish(peace)
        whole = time.monotonic() - begun
        print(f"uninterrupted: {counted(peace)} steps in {whole:.0f} s", flush=True)
        for number in range(1, kills + 1):
            # Every fourth anywhere in the run, the others after a step, so that it gets on.
            anywhere = number % 4 == 0
            delay = rng.uniform(0, 0.8 * whole) if anywhere else rng.uniform(0, 1.5)
            lived = kill_at(war, delay, not anywhere)
            count, shown = counted(war), seen(war)
            print(
                f"kill {number:2}: lived {lived:5.1f} s, ledger {count}, seen {shown}", flush=True
            )
            if not shown <= count <= STEPS:
                sys.exit("the ledger is behind what was seen, or beyond the plan")
        finish(war)
        ours, theirs = weights(war), weights(peace)
        different = [n for n in theirs if not np.array_equal(ours[n], theirs[n])]
        print(f"killed {kills} times: {counted(war)} steps; {len(theirs)} tensors compared")
        if different or ours.keys() != theirs.keys():
            sys.exit(f"different from the uninterrupted run: {different[:5]}")
        if counted(war) != counted(peace) or not verify(war).agrees:
            sys.exit("the ledgers or the report disagree")
        if records(war) != records(peace):
            sys.exit(f"records: {records(war)}, and {records(peace)} without kills")
        print(f"the weights are equal to the bit, and so are the counts of records: {records(war)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    main(arguments.kills, arguments.seed)
