"""Reads PyTorch files from before version 1.6 without PyTorch."""

from __future__ import annotations

import os
import pickle
from typing import IO, Any

import numpy as np

from tfdp.files.torch_file import CheckpointError, StorageType, TensorUnpickler

_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_MOST_BYTES = 8 << 30


class _PlainUnpickler(pickle.Unpickler):
    """Reads numbers, text and plain containers; any name of code is an error."""

    def find_class(self, module: str, name: str) -> Any:
        raise CheckpointError(f"its header asks for {module}.{name}, which is never loaded")


def read_legacy_torch_file(path: str | os.PathLike[str]) -> Any:
    """Returns the content of a file that `torch.save` wrote in its legacy (not zip) format.

    The file is a sequence of pickles (a magic number, a version, the writer's sizes, the object,
    the keys of its buffers) and then the buffers themselves. The object comes before the buffers
    that it refers to, so it is read twice: once to learn where it ends, once for good.

    Args:
        path: The file.

    Returns:
        What was saved, with numpy arrays for tensors.

    Raises:
        FileNotFoundError: There is no such file.
        CheckpointError: The file is damaged, is of another format, or asks for anything but
            tensors and plain containers.
    """
    with open(path, "rb") as file:
        try:
            return _read(file)
        except CheckpointError as error:
            raise CheckpointError(f"{os.fspath(path)}: {error}.") from error
        except Exception as error:
            # A damaged pickle can raise almost anything; the reader needs to know just one thing.
            raise CheckpointError(
                f"{os.fspath(path)}: not a complete legacy PyTorch file "
                f"({type(error).__name__}: {error})."
            ) from error


def _read(file: IO[bytes]) -> Any:
    if _PlainUnpickler(file).load() != _MAGIC or _PlainUnpickler(file).load() != _PROTOCOL:
        raise CheckpointError("it does not begin as a legacy PyTorch file does")
    big_endian = not _PlainUnpickler(file).load()["little_endian"]
    start = file.tell()
    wanted: dict[str, tuple[np.dtype, int]] = {}

    def note(kind: StorageType, key: str, size: int) -> np.ndarray:
        wanted[key] = kind.dtype(big_endian), size
        if not 0 <= size * wanted[key][0].itemsize <= _MOST_BYTES:
            raise CheckpointError(f"buffer {key} claims {size} numbers")
        return np.broadcast_to(np.zeros((), wanted[key][0]), size)

    TensorUnpickler(file, note).load()
    buffers = {str(key): None for key in _PlainUnpickler(file).load()}
    if buffers.keys() != wanted.keys():
        raise CheckpointError("the buffers it lists are not the ones that its tensors use")
    found = {key: _buffer(file, key, *wanted[key], big_endian) for key in buffers}
    file.seek(start)
    return TensorUnpickler(file, lambda _kind, key, _size: found[key]).load()


def _buffer(file: IO[bytes], key: str, dtype: np.dtype, size: int, big_endian: bool) -> np.ndarray:
    """Returns the next buffer: its number of elements, then the elements."""
    stated = int.from_bytes(file.read(8), "big" if big_endian else "little")
    content = file.read(size * dtype.itemsize)
    if stated != size or len(content) != size * dtype.itemsize:
        raise CheckpointError(f"buffer {key} is cut short or of the wrong size")
    return np.frombuffer(content, dtype)
