"""Labelled pictures by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from tfdp.transfer.datasets.base import ArrayPictures, DatasetError, PictureSet
from tfdp.transfer.datasets.packaged import (
    packaged_cifar10,
    packaged_fashion_mnist,
    packaged_mnist,
)
from tfdp.transfer.datasets.stored import FolderPictures, TfdsPictures, npz_pictures

__all__ = [
    "COMMON",
    "ArrayPictures",
    "DatasetError",
    "PictureSet",
    "open_pictures",
    "open_splits",
]

#: Data sets of which everybody has the same copy.
COMMON = ("cifar10", "mnist", "fashion_mnist")

_Path = str | os.PathLike[str]
_PACKAGED: dict[str, Callable[[_Path, str], PictureSet]] = {
    "cifar10": packaged_cifar10,
    "mnist": packaged_mnist,
    "fashion_mnist": packaged_fashion_mnist,
    "folder": FolderPictures,
    "npz": npz_pictures,
}


def open_pictures(dataset: str, split: str, path: _Path | None = None) -> PictureSet:
    """Pictures and labels of a data set.

    Args:
        dataset: "cifar10", "mnist" or "fashion_mnist" from a package at `path`; "folder" of
            class folders or "npz" file at `path`; any other name, or one of the three without a
            path, or "tfds:NAME", is one of TensorFlow Datasets, kept at `path` if given.
        split: "train", "test" or what the data set calls it.
        path: folder or file.

    Raises:
        DatasetError: it cannot be opened; the message says why.
    """
    if dataset in ("folder", "npz") and path is None:
        raise DatasetError(f"data set {dataset!r} needs a path.")
    if dataset in _PACKAGED and path is not None:
        return _PACKAGED[dataset](path, split)
    return TfdsPictures(dataset.removeprefix("tfds:"), split, path)


def open_splits(dataset: str, splits: Sequence[str], path: _Path | None = None) -> list[PictureSet]:
    """Several splits of one data set, whose labels mean the same.

    Args:
        dataset, path: see `open_pictures`.
        splits: one name or more.

    Raises:
        DatasetError: as for `open_pictures`; or no split is named; or there is a single class;
            or the splits have other classes: label 1 would mean one thing in training and another
            in the test.
    """
    if not splits:
        raise DatasetError("no split is named: splits must be one name or more, as 'train,test'.")
    sets = [open_pictures(dataset, split, path) for split in splits]
    first = sets[0]
    if len(first.class_names) < 2:
        raise DatasetError(
            f"data set {first.name!r} has {len(first.class_names)} class: a classifier needs two "
            "or more. In folders of pictures every class has a folder of its own in each split."
        )
    for other in sets[1:]:
        if list(first.class_names) != list(other.class_names):
            differing = set(first.class_names) ^ set(other.class_names)
            raise DatasetError(
                f"splits {first.split!r} and {other.split!r} have other classes "
                f"({', '.join(sorted(differing)[:5]) or 'in another order'}): their labels would "
                "not mean the same. In folders of pictures every split needs a folder for each "
                "class, an empty one if it has no pictures of it."
            )
    return sets
