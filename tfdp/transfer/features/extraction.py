"""From pictures, or TFRecord files of features, to a feature folder: resumable."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from tfdp.data.pictures import center_square
from tfdp.transfer.backbones import Backbone
from tfdp.transfer.features.feature_folder import (
    Batch,
    Extracted,
    FeatureFileError,
    FeatureWriter,
)
from tfdp.transfer.features.picture_sets import PictureSet

DTYPES = ("float16", "float32")
_READERS = 8
_BATCH = 4096
_FLOATS = tf.io.VarLenFeature(tf.float32)
#: TensorFlow's message holds the damaged bytes, which Python then cannot read as text.
_UNREADABLE = (tf.errors.OpError, UnicodeDecodeError)


def feature_header(
    backbone: Backbone, dataset: str, class_names: Sequence[str], dtype: str
) -> dict[str, Any]:
    """Returns what a feature folder says of its features; see `FeatureWriter`.

    The dtype "float16" is half the size of "float32", and precise enough for the classifiers.
    """
    return {
        "backbone": {"name": backbone.name, **backbone.description},
        "preprocessing": {
            "image_size": backbone.image_size,
            "resize": "middle square, bicubic with antialiasing, clipped to 0..255",
        },
        "dataset": {"name": dataset, "class_names": list(class_names)},
        "dtype": dtype,
    }


def extract(
    backbone: Backbone,
    pictures: PictureSet,
    writer: FeatureWriter,
    *,
    batch_size: int = 64,
    shard_rows: int = 10_000,
    limit: int | None = None,
) -> Extracted:
    """Writes the features of one split; continues where an interrupted run stopped.

    Args:
        backbone: Makes the features.
        pictures: The split.
        writer: Of the folder.
        batch_size: Pictures a call of the backbone.
        shard_rows: Examples a file.
        limit: Only the first so many pictures, for a trial.

    Raises:
        FeatureFileError: The folder holds other features, or another division into shards; not a
            single picture can be read; or features are too large for the folder's dtype.
    """
    split = pictures.split
    total = len(pictures) if limit is None else min(limit, len(pictures))
    done = writer.begin(split, total, shard_rows)
    network = tf.function(backbone.features, reduce_retracing=True)
    with (
        ThreadPoolExecutor(_READERS) as readers,
        tqdm(total=total, initial=done, unit="pictures", desc=split) as progress,
    ):

        def batches() -> Iterator[Batch]:
            for start in range(done, total, batch_size):
                indices = range(start, min(start + batch_size, total))
                batch = _features(network, backbone.image_size, pictures, indices, readers)
                progress.update(len(indices))
                yield batch

        outcome = writer.write(split, batches())
    if outcome.examples and outcome.examples == outcome.unreadable:
        writer.forget(split)
        raise FeatureFileError(
            f"none of the {outcome.examples} pictures of split {split!r} can be read; is this "
            "the right dataset?"
        )
    return outcome


def _features(
    network: Any,
    size: int,
    pictures: PictureSet,
    indices: Sequence[int],
    readers: ThreadPoolExecutor,
) -> Batch:
    """Returns the features of some pictures; NaN where one cannot be read."""
    labels = np.asarray([pictures.label(index) for index in indices], np.int32)
    read = list(readers.map(lambda index: _square(pictures, index), indices))
    good = [picture for picture in read if picture is not None]
    if len({picture.shape for picture in good}) > 1:
        good = [center_square(picture, size) for picture in good]
    # Where a batch has none, a black square tells how wide the features are.
    made = network(tf.constant(np.stack(good or [np.zeros((size, size, 3), np.uint8)]))).numpy()
    rows = np.full((len(indices), made.shape[1]), np.nan, np.float32)
    if good:
        rows[[picture is not None for picture in read]] = made
    return Batch(rows, labels)


def _square(pictures: PictureSet, index: int) -> np.ndarray | None:
    """Returns the middle square of a picture in its own resolution; None if it cannot be read."""
    try:
        picture = pictures.picture(index)
        return center_square(picture, min(picture.shape[:2]))
    except Exception:  # whatever a decoder raises for a damaged file
        return None


def convert_tfrecords(
    pattern: str, split: str, writer: FeatureWriter, *, shard_rows: int = 10_000
) -> Extracted:
    """Writes a split from TFRecord files with `repr` and `label`; see `read_tfrecords`.

    Records are counted first: a manifest states the size of a split before its shards are there.

    Raises:
        FeatureFileError: A file is damaged, a label is not one of the folder's classes, or
            features are too large for the folder's dtype.
    """
    classes = len(writer.manifest["dataset"]["class_names"])
    total = sum(len(_known(labels, classes)) for _, labels in read_tfrecords(pattern))
    done = writer.begin(split, total, shard_rows)
    with tqdm(total=total, initial=done, unit="examples", desc=split) as progress:

        def batches() -> Iterator[Batch]:
            skip = done
            for features, labels in read_tfrecords(pattern):
                batch = Batch(features[skip:], labels[skip:])
                skip = max(0, skip - len(labels))
                progress.update(len(batch.labels))
                yield batch

        return writer.write(split, batches())


def _known(labels: np.ndarray, classes: int) -> np.ndarray:
    """Returns the labels, if all of them are classes."""
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise FeatureFileError(
            f"labels must lie in 0..{classes - 1}, as there are {classes} class names; found "
            f"{low if low < 0 else high}."
        )
    return labels


def read_tfrecords(pattern: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields batches of features and labels from TFRecord files.

    Each record is a `tf.train.Example` with `repr`, floats `[D]`, and `label`, one integer: the
    format of Mehta, Krichene et al. 2022 (arXiv 2211.13403).

    Args:
        pattern: A file, or a glob pattern; files are read in the order of their names.

    Yields:
        Float32 `[B, D]` and int64 `[B]`.

    Raises:
        FeatureFileError: No file matches, a file is damaged, or records differ in width.
    """
    files = sorted(glob.glob(pattern))
    if not files:
        raise FeatureFileError(f"no file matches {pattern!r}.")
    width = _width(files)
    schema = {
        "repr": tf.io.FixedLenFeature([width], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }
    for file in files:
        records = tf.data.TFRecordDataset(file).batch(_BATCH)
        try:
            for batch in records:
                parsed = tf.io.parse_example(batch, schema)
                yield parsed["repr"].numpy(), parsed["label"].numpy()
        except _UNREADABLE as error:
            raise FeatureFileError(
                f"{file}: a record is damaged, or is not one of 'repr' with {width} floats and "
                f"one 'label' ({_said(error)})."
            ) from error


def _width(files: list[str]) -> int:
    """Returns the number of floats in the first record."""
    for file in files:
        try:
            for record in tf.data.TFRecordDataset(file).take(1):
                parsed = tf.io.parse_single_example(record, {"repr": _FLOATS})
                if width := int(tf.size(parsed["repr"].values)):
                    return width
                raise FeatureFileError(f"{file}: its records have no floats named 'repr'.")
        except _UNREADABLE as error:
            raise FeatureFileError(
                f"{file}: not a TFRecord file of tf.train.Example records with floats named "
                f"'repr' ({_said(error)})."
            ) from error
    raise FeatureFileError("none of the files holds a record.")


def _said(error: Exception) -> str:
    """Returns what TensorFlow said, without the names of its ops."""
    if not isinstance(error, tf.errors.OpError):
        return "it holds bytes that are not a record"
    return re.sub(r"{{.*?}} ?| ?\[Op:.*", "", error.message.splitlines()[0])
