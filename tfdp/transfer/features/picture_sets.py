"""Labeled pictures with random access: in arrays, folders, .npz files, TensorFlow Datasets."""

from __future__ import annotations

import abc
import os
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tfdp.data.pictures import open_picture

_SUFFIXES = {".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp"}


class DatasetError(ValueError):
    """A dataset that cannot be opened or does not hold what it should."""


class PictureSet(abc.ABC):
    """The pictures and labels of one split.

    Attributes:
        name: Of the dataset, for manifests.
        split: "train", "test" or what the dataset calls it.
        class_names: K names, in the order of the labels.
    """

    name: str
    split: str
    class_names: Sequence[str]

    @abc.abstractmethod
    def __len__(self) -> int:
        """Returns N."""

    @abc.abstractmethod
    def label(self, index: int) -> int:
        """Returns the class of one picture, 0..K-1; cheap even where the picture is not."""

    @abc.abstractmethod
    def picture(self, index: int) -> np.ndarray:
        """Returns one picture, uint8 `[H, W, 3]`, RGB.

        Raises:
            OSError, ValueError: It cannot be read; extraction skips and counts it.
        """

    @abc.abstractmethod
    def content(self, index: int) -> bytes:
        """Returns bytes that depend on this picture alone, not on its place in the split."""


class ArrayPictures(PictureSet):
    """Pictures in one array.

    Args:
        name, split, class_names: See `PictureSet`.
        pictures: Uint8 `[N, H, W]`, `[N, H, W, 1]` or `[N, H, W, 3]`; gray ones are repeated
            over the three channels.
        labels: Integers `[N]`.

    Raises:
        DatasetError: Shapes or types are of another kind, or a label has no class name.
    """

    def __init__(
        self,
        name: str,
        split: str,
        class_names: Sequence[str],
        pictures: np.ndarray,
        labels: np.ndarray,
    ) -> None:
        what = f"{name}, split {split}"
        if pictures.ndim == 3:
            pictures = pictures[..., None]
        if pictures.dtype != np.uint8 or pictures.ndim != 4 or pictures.shape[-1] not in (1, 3):
            raise DatasetError(
                f"{what}: pictures must be uint8 [N, H, W], [N, H, W, 1] or [N, H, W, 3], got "
                f"{pictures.dtype} {list(pictures.shape)}."
            )
        if labels.shape != pictures.shape[:1]:
            raise DatasetError(f"{what}: {len(pictures)} pictures but labels {labels.shape}.")
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(class_names):
            raise DatasetError(
                f"{what}: labels {labels.min()}..{labels.max()}, {len(class_names)} classes."
            )
        self.name, self.split, self.class_names = name, split, list(class_names)
        self._labels, self._pictures = labels.astype(np.int32), pictures

    def __len__(self) -> int:
        return len(self._labels)

    def label(self, index: int) -> int:
        """Returns the class of one picture."""
        return int(self._labels[index])

    def picture(self, index: int) -> np.ndarray:
        """Returns one picture; see `PictureSet.picture`."""
        return np.broadcast_to(self._pictures[index], (*self._pictures.shape[1:3], 3))

    def content(self, index: int) -> bytes:
        """Returns the pixels."""
        return self._pictures[index].tobytes()


class FolderPictures(PictureSet):
    """Picture files in `root/split/class/...`, or `root/class/...` where there are no splits.

    Args:
        root: The folder.
        split: Name of the split's folder.

    Raises:
        DatasetError: There is no such folder, or no class folder with pictures.
    """

    def __init__(self, root: str | os.PathLike[str], split: str) -> None:
        folder = Path(root)
        if (folder / split).is_dir():
            folder = folder / split
        elif split != "train" or not folder.is_dir():
            raise DatasetError(f"{folder / split}: no such folder.")
        # Hidden folders, such as .ipynb_checkpoints, are not classes.
        children = (child for child in folder.iterdir() if not child.name.startswith("."))
        classes = sorted(child for child in children if child.is_dir())
        self._files = [
            (file, label)
            for label, child in enumerate(classes)
            for file in sorted(child.rglob("*"))
            if file.suffix.lower() in _SUFFIXES
        ]
        if not self._files:
            raise DatasetError(f"{folder}: holds no pictures in class folders.")
        # Not the bare name: a folder called mnist may not hold the public MNIST.
        self.name = f"folder:{Path(root).resolve().name}"
        self.split, self._folder = split, folder
        self.class_names = [child.name for child in classes]

    def __len__(self) -> int:
        return len(self._files)

    def label(self, index: int) -> int:
        """Returns the class of one picture."""
        return self._files[index][1]

    def picture(self, index: int) -> np.ndarray:
        """Returns one picture; see `PictureSet.picture`."""
        return open_picture(self._files[index][0])

    def content(self, index: int) -> bytes:
        """Returns the name of the file in its split, which takes no reading."""
        return self._files[index][0].relative_to(self._folder).as_posix().encode()


def npz_pictures(path: str | os.PathLike[str], split: str) -> ArrayPictures:
    """Returns the pictures of a .npz file with arrays `x_<split>` and `y_<split>`, as in Keras.

    Raises:
        DatasetError: It has no such arrays, or is damaged; or labels are not whole numbers.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            pictures, labels = arrays[f"x_{split}"], arrays[f"y_{split}"].reshape(-1)
            every = [_whole(path, k, arrays[k]) for k in arrays.files if k.startswith("y_")]
            classes = max(int(array.max()) for array in every) + 1
    except DatasetError:
        raise
    except KeyError as error:
        raise DatasetError(f"{path}: needs arrays x_{split} and y_{split} ({error}).") from error
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DatasetError(f"{path}: not a readable .npz file ({error}).") from error
    names = [str(label) for label in range(classes)]
    return ArrayPictures(f"npz:{Path(path).stem}", split, names, pictures, labels)


def _whole(path: str | os.PathLike[str], name: str, labels: np.ndarray) -> np.ndarray:
    """Returns labels, if all are whole numbers; others would be rounded to another class."""
    with np.errstate(invalid="ignore"):
        if labels.dtype.kind in "iufb" and np.array_equal(labels, labels.astype(np.int64)):
            return labels
    raise DatasetError(
        f"{path}: labels must be whole numbers from 0, {name} holds others ({labels.dtype})."
    )


class TfdsPictures(PictureSet):
    """A dataset of TensorFlow Datasets by name: cifar100, imagenet2012, places365_small, ...

    Args:
        name: As tensorflow_datasets knows it, with an optional config and version.
        split: As tensorflow_datasets knows it.
        data_dir: Where the dataset is or goes; its usual folder when None.

    Raises:
        DatasetError: There is no such dataset or split, or it cannot be fetched.
    """

    def __init__(
        self, name: str, split: str, data_dir: str | os.PathLike[str] | None = None
    ) -> None:
        import tensorflow_datasets as tfds

        try:
            builder = tfds.builder(name, data_dir=data_dir, file_format="array_record")
            builder.download_and_prepare()
            self._source = builder.as_data_source(
                split=split, decoders={"image": tfds.decode.SkipDecoding()}
            )
            feature = builder.info.features["label"]
        except Exception as error:  # tfds raises very many kinds of errors
            # About an unknown name it lists every name that it knows, a thousand and more.
            said = str(error).partition("Available datasets")[0].strip()
            raise DatasetError(
                f"dataset {name!r}, split {split!r} cannot be opened by tensorflow_datasets: {said}"
            ) from error
        self.name, self.split, self.class_names = name, split, list(feature.names)

    def __len__(self) -> int:
        return len(self._source)

    def label(self, index: int) -> int:
        """Returns the class of one picture."""
        return int(self._source[index]["label"])

    def picture(self, index: int) -> np.ndarray:
        """Returns one picture; see `PictureSet.picture`."""
        return open_picture(self._source[index]["image"])

    def content(self, index: int) -> bytes:
        """Returns the encoded picture."""
        return bytes(self._source[index]["image"])
