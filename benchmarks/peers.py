"""Virtual environments of other libraries, so that benchmarks can compare with them.

    python -m benchmarks.peers --folder=.venv-peers

Each peer has versions of its own that do not go together with TensorFlow's or with each other's.
A benchmark starts a peer's script with the interpreter that `peer_python` returns.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

#: Pinned packages by peer.
PEERS = {
    "opacus": ("torch==2.13.0", "opacus==1.6.0"),
    "jax_privacy": ("jax==0.10.2", "jax_privacy==2.0.0", "keras==3.15.1"),
    "tf_privacy": ("tensorflow==2.15.1", "tensorflow-privacy==0.9.0"),
}
#: Where the environments are, or go, unless told otherwise; git ignores it.
FOLDER = ".venv-peers"


def peer_python(name: str, folder: str | Path) -> Path:
    """Returns the interpreter of a peer; installs the peer first where it is missing.

    Args:
      name: Of ``PEERS``.
      folder: Where all environments are.

    Raises:
      subprocess.CalledProcessError: Installing failed; its output says why.
    """
    root = Path(folder).resolve() / name
    python, done = root / "bin" / "python", root / "installed.txt"
    wanted = "\n".join(PEERS[name])
    if not done.exists() or done.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", root], check=True)
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([python, *install, *PEERS[name]], check=True)
        done.write_text(wanted)
    return python


@contextlib.contextmanager
def peer_process(
    name: str, task: str, folder: str | Path, *arguments: str
) -> Iterator[Callable[[], tuple[float, float]]]:
    """Starts a peer's process, which runs a step for every line that it reads and answers its time.

    Args:
      name: Of ``PEERS``.
      task: The script is ``peer_scripts/{name}_{task}.py``.
      folder: Where all environments are.
      *arguments: Of the script.

    Yields:
      A function that has it run one step, and returns the step's seconds and the process's
      peak memory in GiB so far.
    """
    script = Path(__file__).parent / "peer_scripts" / f"{name}_{task}.py"
    with subprocess.Popen(
        [peer_python(name, folder), script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:

        def step() -> tuple[float, float]:
            print("step", file=process.stdin, flush=True)
            answer = process.stdout.readline() if process.stdout else ""
            if not answer:
                raise RuntimeError(f"the process of {name} ended; its error stands above.")
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
            return float(answer), int(peak.split()[1]) / 2**20

        try:
            yield step
        finally:
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description="Installs peers.")
    parser.add_argument("--folder", default=FOLDER, help="where the environments go")
    folder = parser.parse_args().folder
    for name in PEERS:
        print(f"{name}: {peer_python(name, folder)}")


if __name__ == "__main__":
    main()
