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
from tfdp.privacy import Ledger, LedgerBusyError, UpdateSettings
"""
# Records for ever, in segments of seven, and says after each update that it was recorded.
WRITER = """
ledger = Ledger(sys.argv[1])
print("ready", flush=True)
number = 0
while True:
    noise = 1.0 + number // 7
    ledger.record(UpdateSettings(60_000, 256, noise, 1.0))
    number += 1
    print(number, flush=True)
"""
SECOND = """
try:
    Ledger(sys.argv[1])
except LedgerBusyError as error:
    print(error)
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
    first = Ledger.read(tmp_path).updates
    assert seen <= first <= seen + 1
    # The lock of the dead process does not hold, and its updates stay.
    with Ledger(tmp_path) as ledger:
        assert ledger.updates == first


def test_a_second_process_is_refused_and_told_who_writes(tmp_path):
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
