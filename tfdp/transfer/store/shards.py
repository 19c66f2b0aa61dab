"""Feature shards: one .npy file of features and one of labels, read a slice at a time."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np

from tfdp.files import unfinished

_CHUNK = 1 << 22


class FeatureFileError(ValueError):
    """A feature file or folder that is missing, damaged, or not what its manifest says."""


class NpyPart:
    """The rows of a .npy file; a slice is read from disk each time, and nothing is mapped.

    A memory map would count the whole file as this process's memory once it has been read.

    Args:
        path: the file: float16 or float32 `[N, D]`.

    Raises:
        FeatureFileError: the file is missing, cut short, or not such an array.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        try:
            with open(path, "rb") as file:
                version = np.lib.format.read_magic(file)
                read = (
                    np.lib.format.read_array_header_1_0
                    if version == (1, 0)
                    else np.lib.format.read_array_header_2_0
                )
                self.shape, fortran, self.dtype = read(file)
                self._offset = file.tell()
        except FileNotFoundError:
            raise FeatureFileError(f"{path}: this shard is missing.") from None
        except ValueError as error:
            raise FeatureFileError(f"{path}: not a .npy file ({error}).") from error
        if len(self.shape) != 2 or fortran or self.dtype.kind != "f":
            raise FeatureFileError(
                f"{path}: expected floats [N, D] in C order, got {self.dtype} {self.shape}."
            )
        expected = self._offset + self.shape[0] * self._row_bytes
        if self._path.stat().st_size != expected:
            raise FeatureFileError(
                f"{path}: has {self._path.stat().st_size} bytes where {expected} are expected."
            )

    @property
    def _row_bytes(self) -> int:
        return self.shape[1] * self.dtype.itemsize

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self.shape[0])
        count = max(0, stop - start)
        offset = self._offset + start * self._row_bytes
        flat = np.fromfile(self._path, self.dtype, count * self.shape[1], offset=offset)
        return flat.reshape(count, self.shape[1])


def write_npy(path: Path, array: np.ndarray) -> str:
    """Writes a .npy file that appears whole or not at all; returns its SHA-256."""
    with unfinished(path) as partial:
        with open(partial, "wb") as file:
            np.save(file, array)
        return sha256(partial)


def sha256(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
