"""Files that are complete or absent, whenever the process that writes them ends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def unfinished(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Lends another name to write a file under, which takes the place of `path` at the end.

    What was there before stays until then, and stays for good if writing fails.

    Args:
        path: Of the file; its folder is made if need be.

    Yields:
        The name to write under, in the same folder.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.unfinished")
    try:
        yield partial
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)  # on a full disk it would be in the way
        raise


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Writes a text file, in UTF-8 and with the ends of lines that the text has."""
    with unfinished(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="")


def write_durably(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes a file that is on the disk, under its name, when this returns."""
    with unfinished(path) as partial, open(partial, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    folder = os.open(Path(path).parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
