"""Virtual environments of other libraries, so that benchmarks can compare with them.

    python -m benchmarks.peers --folder=.venv-peers

Each peer has versions of its own that do not go together with TensorFlow's or with each other's.
A benchmark starts a peer's script with the interpreter that `peer_python` returns.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

#: Pinned packages by peer.
PEERS = {
    "opacus": ("torch==2.13.0", "opacus==1.6.0"),
    "jax_privacy": ("jax==0.10.2", "jax_privacy==2.0.0"),
}
#: Where the environments are, or go, unless told otherwise; git ignores it.
FOLDER = ".venv-peers"


def peer_python(name: str, folder: str | Path) -> Path:
    """The interpreter of a peer; installs the peer first where it is missing.

    Args:
        name: of `PEERS`.
        folder: of all environments.

    Raises:
        subprocess.CalledProcessError: installing failed; its output says why.
    """
    root = Path(folder).resolve() / name
    python, done = root / "bin" / "python", root / "installed.txt"
    wanted = "\n".join(PEERS[name])
    if not done.exists() or done.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", root], check=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *PEERS[name]], check=True)
        done.write_text(wanted)
    return python


def main() -> None:
    parser = argparse.ArgumentParser(description="Installs peers.")
    parser.add_argument("--folder", default=FOLDER, help="where the environments go")
    folder = parser.parse_args().folder
    for name in PEERS:
        print(f"{name}: {peer_python(name, folder)}")


if __name__ == "__main__":
    main()
