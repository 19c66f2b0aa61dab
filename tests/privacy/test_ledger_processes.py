"""The ledger across processes: kills, and a second writer."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tfdp.privacy import Ledger

# The privacy room alone, without the package's front door, which imports TensorFlow.
PRELUDE = """
import sys, types
from pathlib import Path
package = types.ModuleType("tfdp")
package.__path__ = [str(Path.cwd() / "tfdp")]
sys.modules["tfdp"] = package
from tfdp.privacy.ledger import Ledger, LedgerBusyError
from tfdp.privacy.settings import StepSettings
"""
# Records for ever, in segments of seven, and says after each step that it was recorded.
WRITER = """
ledger = Ledger(sys.argv[1])
print("ready", flush=True)
number = 0
while True:
    noise = 1.0 + number // 7
    ledger.record(StepSettings(60_000, 256, noise, 1.0))
    number += 1
    print(number, flush=True)
"""
SECOND = """
try:
    Ledger(sys.argv[1])
except LedgerBusyError as error:
    print(error)
"""
# In memory and on disk: what a fork recorded, the other process would not know.
FORKED = """
import os
for ledger in (Ledger(), Ledger(sys.argv[1])):
    ledger.record(StepSettings(60_000, 256, 1.0, 1.0))
    child = os.fork()
    if child == 0:
        for use in (lambda: ledger.record(StepSettings(60_000, 256, 1.0, 1.0)),
                    lambda: ledger.merge(Ledger()), lambda: Ledger(sys.argv[1])):
            try:
                use()
                print("nothing", flush=True)
            except ValueError as error:
                print(type(error).__name__, error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    ledger.record(StepSettings(60_000, 256, 1.0, 1.0))
    print(ledger.steps, flush=True)
"""
ROOT = Path(__file__).resolve().parents[2]


def start(code, folder):
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + code, str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def kill_after(child, seconds):
    assert child.stdout.readline() == "ready\n"
    time.sleep(seconds)
    child.send_signal(signal.SIGKILL)
    lines = child.stdout.read().split("\n")
    child.wait()
    return int(lines[-2]) if len(lines) > 1 else 0


@pytest.mark.parametrize("milliseconds", [1, 23, 61, 97, 140])
def test_kill_9_loses_nothing_and_adds_at_most_one(milliseconds, tmp_path):
    seen = kill_after(start(WRITER, tmp_path), milliseconds / 1000)
    first = Ledger.read(tmp_path).steps
    assert seen <= first <= seen + 1
    # The lock of the dead process does not hold, and its steps stay.
    with Ledger(tmp_path) as ledger:
        assert ledger.steps == first


def test_a_second_process_is_rejected_and_told_who_writes(tmp_path):
    writer = start(WRITER, tmp_path)
    try:
        assert writer.stdout.readline() == "ready\n"
        second = start(SECOND, tmp_path)
        answer, _ = second.communicate(timeout=60)
        assert f"pid {writer.pid}" in answer
        assert "ledger.jsonl is being written by" in answer
    finally:
        writer.kill()
        writer.communicate()


def test_a_fork_records_nothing_in_the_ledger_of_the_other_process(tmp_path):
    process = start(FORKED, tmp_path)
    lines = process.communicate(timeout=60)[0].splitlines()
    memory, disk = lines[:4], lines[4:]
    for record, merge, opening, steps in (memory, disk):
        for refused in (record, merge):
            assert f"LedgerError the ledger belongs to process {process.pid}, and" in refused
        assert "LedgerBusyError" in opening and f"pid {process.pid}" in opening
        assert steps == "2"
