"""Pictures in folders, in .npz files and in TensorFlow Datasets."""

from __future__ import annotations

import os
import zipfile
import zlib
from pathlib import Path

import numpy as np

from tfdp.data.pictures import open_picture
from tfdp.transfer.datasets.base import ArrayPictures, DatasetError, PictureSet

_SUFFIXES = {".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp"}


class FolderPictures(PictureSet):
    """Picture files in `root/split/class/...`, or `root/class/...` where there are no splits.

    Args:
        root: the folder.
        split: name of the split's folder.

    Raises:
        DatasetError: there is no such folder, or no class folder with pictures.
    """

    def __init__(self, root: str | os.PathLike[str], split: str) -> None:
        folder = Path(root)
        if (folder / split).is_dir():
            folder = folder / split
        elif split != "train" or not folder.is_dir():
            raise DatasetError(f"{folder / split}: no such folder.")
        # Hidden folders, such as .ipynb_checkpoints, are no classes.
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
        # Not the bare name: a folder called mnist is not the MNIST that everybody has.
        self.name = f"folder:{Path(root).resolve().name}"
        self.split, self._folder = split, folder
        self.class_names = [child.name for child in classes]

    def __len__(self) -> int:
        return len(self._files)

    def label(self, index: int) -> int:
        """The class of one picture."""
        return self._files[index][1]

    def picture(self, index: int) -> np.ndarray:
        """One picture; see `PictureSet.picture`."""
        return open_picture(self._files[index][0])

    def content(self, index: int) -> bytes:
        """The name of the file in its split, which is there without reading it."""
        return self._files[index][0].relative_to(self._folder).as_posix().encode()


def npz_pictures(path: str | os.PathLike[str], split: str) -> ArrayPictures:
    """Pictures of a .npz file with arrays `x_<split>` and `y_<split>`, as Keras stores them.

    Raises:
        DatasetError: it has no such arrays, or is damaged; or labels are not whole numbers.
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
    """Labels, if all are whole numbers; others would be rounded to classes that are not theirs."""
    with np.errstate(invalid="ignore"):
        if labels.dtype.kind in "iufb" and np.array_equal(labels, labels.astype(np.int64)):
            return labels
    raise DatasetError(
        f"{path}: labels must be whole numbers from 0, {name} holds others ({labels.dtype})."
    )


class TfdsPictures(PictureSet):
    """A data set of TensorFlow Datasets by name: cifar100, imagenet2012, places365_small, ...

    Args:
        name: as tensorflow_datasets knows it, with an optional config and version.
        split: as tensorflow_datasets knows it.
        data_dir: where the data set is or goes; its usual folder when None.

    Raises:
        DatasetError: there is no such data set or split, or it cannot be fetched.
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
            # Of an unknown name it lists all that it knows, a thousand and more.
            said = str(error).partition("Available datasets")[0].strip()
            raise DatasetError(
                f"data set {name!r}, split {split!r} cannot be opened by tensorflow_datasets: "
                f"{said}"
            ) from error
        self.name, self.split, self.class_names = name, split, list(feature.names)

    def __len__(self) -> int:
        return len(self._source)

    def label(self, index: int) -> int:
        """The class of one picture."""
        return int(self._source[index]["label"])

    def picture(self, index: int) -> np.ndarray:
        """One picture; see `PictureSet.picture`."""
        return open_picture(self._source[index]["image"])

    def content(self, index: int) -> bytes:
        """The encoded picture."""
        return bytes(self._source[index]["image"])
