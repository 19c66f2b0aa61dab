"""Reading of PyTorch's zip files (.pth, .pt) without PyTorch."""

from __future__ import annotations

import os
import zipfile
from typing import Any

import numpy as np

from tfdp.files.torch_pickle import CheckpointError, StorageType, TensorUnpickler


def read_torch_file(path: str | os.PathLike[str]) -> Any:
    """The content of a file that `torch.save` wrote (PyTorch 1.6 and later).

    Args:
        path: the file.

    Returns:
        What was saved, with numpy arrays for tensors and empty placeholders for
        `argparse.Namespace`. bfloat16 comes as float32.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: the file is damaged, is of another format, or asks for anything
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
