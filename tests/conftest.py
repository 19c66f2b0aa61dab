"""What every test shares: a quiet, seeded TensorFlow, and child processes of their own.

The environment is set here, before anything imports TensorFlow, because TensorFlow reads it once.
Op determinism stays off: it makes unseeded random ops an error, and the library draws its default
seeds from the operating system, so the tests would run something that users do not.
"""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from tests.forks import ROOT, Fork


def _threads_per_worker() -> int:
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return max(1, (os.cpu_count() or 1) // workers)


os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
for _name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
    # xdist workers that each use every core slow one another down.
    os.environ.setdefault(_name, str(_threads_per_worker()))


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Gives each test the same global random state, in whatever order the tests run."""
    if "keras" in sys.modules:  # else there is nothing to seed, and importing it takes seconds
        sys.modules["keras"].utils.set_random_seed(20240306)


@pytest.fixture(autouse=True, scope="module")
def fresh_keras_session() -> Iterator[None]:
    """Makes the automatic layer names of a module its own (collecting garbage takes long)."""
    yield
    if "keras" in sys.modules:
        sys.modules["keras"].utils.clear_session(free_memory=False)


_LOGICAL_DEVICES = """
import tensorflow as _tf
_tf.config.set_logical_device_configuration(
    _tf.config.list_physical_devices("CPU")[0],
    [_tf.config.LogicalDeviceConfiguration()] * {devices},
)
"""


def child_code(code_or_module: str, devices: int = 1) -> str:
    """The program of a child: logical devices first, then a module, a file or the given code."""
    prelude = _LOGICAL_DEVICES.format(devices=devices) if devices > 1 else ""
    if code_or_module.endswith(".py"):
        program = f"import runpy; runpy.run_path({code_or_module!r}, run_name='__main__')"
    elif all(part.isidentifier() for part in code_or_module.split(".")):
        program = f"import runpy; runpy.run_module({code_or_module!r}, run_name='__main__')"
    else:
        program = textwrap.dedent(code_or_module)
    return f"{prelude}\n{program}"


RunInSubprocess = Callable[..., str]


def child_output(
    code_or_module: str,
    *args: str,
    devices: int = 1,
    env: Mapping[str, str] | None = None,
    timeout: float = 300,
) -> str:
    """Runs a child in the repository root; fails the test with its output if it fails.

    Args:
        code_or_module: Python source, a dotted module name, or the path of a `.py` file.
        *args: the child's `sys.argv[1:]`.
        devices: how many logical CPU devices TensorFlow has in the child.
        env: environment variables to add or replace.
        timeout: seconds after which the child is killed and the test fails.

    Returns:
        The child's standard output.
    """
    command: Sequence[str] = [sys.executable, "-c", child_code(code_or_module, devices), *args]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    child_env = {**os.environ, "PYTHONPATH": path, **(env or {})}
    try:
        child = subprocess.run(
            command, cwd=ROOT, env=child_env, capture_output=True, text=True, timeout=timeout
        )
    except subprocess.TimeoutExpired as late:
        pytest.fail(f"child still ran after {timeout} s\n{late.stdout}\n{late.stderr}", False)
    if child.returncode != 0:
        pytest.fail(f"child ended with {child.returncode}\n{child.stdout}\n{child.stderr}", False)
    return child.stdout


def fork_output(
    code_or_module: str,
    *args: str,
    devices: int = 1,
    env: Mapping[str, str] | None = None,
    timeout: float = 300,
) -> str:
    """Does what `child_output` does, in a process whose imports have been made: seconds faster."""
    code, out, err = Fork(child_code(code_or_module, devices), *args, env=env).outcome(timeout)
    if code != 0:
        pytest.fail(f"fork ended with {code}, or ran for {timeout} s\n{out}\n{err}", False)
    return out


@pytest.fixture
def run_in_subprocess() -> RunInSubprocess:
    """`child_output`: runs code in a Python process of its own and returns what it printed.

    Distribution tests need it: logical devices are fixed once a process, and after one failed
    collective every later one in the same process fails too.
    """
    return child_output


@pytest.fixture
def run_in_fork() -> RunInSubprocess:
    """`fork_output`: a process of its own too, for what does not depend on how it imports."""
    return fork_output
