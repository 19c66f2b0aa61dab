"""Reading of PyTorch's zip files (.pth, .pt) without PyTorch."""

from __future__ import annotations

import collections
import dataclasses
import math
import os
import pickle
import zipfile
from collections.abc import Callable
from typing import IO, Any

import numpy as np


def read_torch_file(path: str | os.PathLike[str]) -> Any:
    """The content of a file that `torch.save` wrote (PyTorch 1.6 and later).

    Args:
        path: The file.

    Returns:
        What was saved, with numpy arrays for tensors and empty placeholders for
        `argparse.Namespace`. bfloat16 comes as float32.

    Raises:
        FileNotFoundError: There is no such file.
        CheckpointError: The file is damaged, is of another format, or asks for anything
            but tensors and plain containers.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _read_archive(archive)
    except OSError:
        raise
    except zipfile.BadZipFile as error:
        raise CheckpointError(
            f"{os.fspath(path)}: not a complete PyTorch zip file ({error}). It is truncated or "
            "damaged, or was written before PyTorch 1.6."
        ) from error
    except CheckpointError as error:
        raise CheckpointError(f"{os.fspath(path)}: {error}.") from error
    except Exception as error:
        # A damaged pickle can raise almost anything; the reader needs to know just one thing.
        raise CheckpointError(
            f"{os.fspath(path)}: its table of contents is damaged "
            f"({type(error).__name__}: {error})."
        ) from error


def _read_archive(archive: zipfile.ZipFile) -> Any:
    entries = {info.filename: info for info in archive.infolist()}
    tables = [name for name in entries if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(tables) != 1:
        raise CheckpointError("a zip file without one data.pkl is not a PyTorch file")
    folder = tables[0].removesuffix("data.pkl")
    order = f"{folder}byteorder"
    big_endian = order in entries and archive.read(order) == b"big"

    def load_storage(kind: StorageType, key: str, size: int) -> np.ndarray:
        info, dtype = entries.get(f"{folder}data/{key}"), kind.dtype(big_endian)
        # Sizes are compared before reading: PyTorch never compresses, so neither may this file.
        if (
            info is None
            or info.compress_type != zipfile.ZIP_STORED
            or info.file_size != size * dtype.itemsize
        ):
            raise CheckpointError(f"buffer {key} is missing, compressed or of the wrong size")
        return np.frombuffer(archive.read(info), dtype)

    with archive.open(tables[0]) as table:
        return TensorUnpickler(table, load_storage).load()


class CheckpointError(ValueError):
    """A file that cannot be read as a checkpoint, or that does not fit the model."""


class Placeholder:
    """Stands for an object of a file whose class is of no interest, such as its arguments."""


@dataclasses.dataclass(frozen=True)
class StorageType:
    """The element type of a stored buffer. numpy has no bfloat16: its bits come as uint16."""

    name: str
    code: str

    def dtype(self, big_endian: bool) -> np.dtype:
        """The numpy type of the stored bytes."""
        return np.dtype(self.code).newbyteorder(">" if big_endian else "<")


@dataclasses.dataclass(frozen=True)
class Storage:
    """A flat buffer of a file and its type."""

    kind: StorageType
    values: np.ndarray


_STORAGE_TYPES = {
    name: StorageType(name, code)
    for name, code in {
        "DoubleStorage": "f8",
        "FloatStorage": "f4",
        "HalfStorage": "f2",
        "BFloat16Storage": "u2",
        "LongStorage": "i8",
        "IntStorage": "i4",
        "ShortStorage": "i2",
        "CharStorage": "i1",
        "ByteStorage": "u1",
        "BoolStorage": "?",
    }.items()
}


def _rebuild_tensor(
    storage: Storage,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    *_: Any,
) -> np.ndarray:
    """The array that a PyTorch tensor describes, once it is known to stay in its buffer."""
    values = storage.values
    count = math.prod(shape)
    last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    sound = min((offset, *shape, *strides)) >= 0 and count <= values.size
    if not sound or (count and last >= values.size):
        raise CheckpointError(
            f"a tensor of shape {tuple(shape)} does not fit its buffer of {values.size} numbers"
        )
    # Of the buffer's own stride, which is 0 for one number that stands for a buffer not yet read.
    byte_strides = [step * values.strides[0] for step in strides]
    view = np.lib.stride_tricks.as_strided(values[offset:], shape, byte_strides)
    if storage.kind.name == "BFloat16Storage":
        return (view.astype(np.uint32) << 16).view(np.float32)
    return np.array(view, dtype=view.dtype.newbyteorder("="))


def _rebuild_parameter(data: np.ndarray, *_: Any) -> np.ndarray:
    return data


_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("argparse", "Namespace"): Placeholder,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    **{("torch", name): kind for name, kind in _STORAGE_TYPES.items()},
}


class TensorUnpickler(pickle.Unpickler):
    """Reads a pickle in which only containers, numbers, text and tensors may occur.

    Nothing of the file is imported or run: the few names that PyTorch writes stand for
    functions of this module, and any other name ends the reading.

    Args:
        file: The pickle.
        load_storage: Gives the buffer of a persistent id: (type, key, number of elements).
    """

    def __init__(
        self, file: IO[bytes], load_storage: Callable[[StorageType, str, int], np.ndarray]
    ) -> None:
        super().__init__(file)
        self._load_storage = load_storage
        self._storages: dict[str, Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for a name.

        Raises:
            CheckpointError: The name is not one that tensors need.
        """
        if (module, name) not in _ALLOWED:
            raise CheckpointError(
                f"it asks for {module}.{name}, which no file of tensors needs: rejected"
            )
        return _ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> Storage:
        """The buffer that a tensor of the pickle refers to."""
        tag, kind, key, _, size, *_ = pid
        if tag != "storage" or not isinstance(kind, StorageType):
            raise CheckpointError(f"it refers to {tag!r}, which is not a buffer of numbers")
        if key not in self._storages:
            self._storages[key] = Storage(kind, self._load_storage(kind, str(key), int(size)))
        return self._storages[key]
