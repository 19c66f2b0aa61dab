"""From pictures to a folder of features: resumable, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from tfdp.data.pictures import center_square
from tfdp.transfer.backbones import Backbone
from tfdp.transfer.datasets import PictureSet
from tfdp.transfer.store import FeatureFileError, FeatureWriter, read_tfrecords

DTYPES = ("float16", "float32")
_READERS = 8


class Batch(NamedTuple):
    """Some rows on their way into shards: features `[B, D]` and labels `[B]`."""

    features: np.ndarray
    labels: np.ndarray


class Extracted(NamedTuple):
    """What a split came to.

    Attributes:
        rows: rows in the folder, those of earlier runs included.
        unreadable: pictures that could not be read. Their rows are NaN: methods leave them out.
    """

    rows: int
    unreadable: int


def feature_header(
    backbone: Backbone, dataset: str, class_names: Sequence[str], dtype: str
) -> dict[str, Any]:
    """What a feature folder says of its features; see `FeatureWriter`."""
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
    dtype: str = "float16",
    batch_size: int = 64,
    shard_rows: int = 10_000,
    limit: int | None = None,
) -> Extracted:
    """Writes the features of one split; goes on where an interrupted run stopped.

    Args:
        backbone: makes the features.
        pictures: the split.
        writer: of the folder.
        dtype: "float16" (half the size, and what the classifiers need) or "float32".
        batch_size: pictures a call of the backbone.
        shard_rows: rows a file.
        limit: only the first so many pictures, for a trial.

    Raises:
        FeatureFileError: the folder holds other features, or another division into shards; not a
            single picture can be read; or features are too large for `dtype`.
    """
    total = len(pictures) if limit is None else min(limit, len(pictures))
    done = writer.begin(pictures.split, total, shard_rows)
    network = tf.function(backbone.features, reduce_retracing=True)
    with (
        ThreadPoolExecutor(_READERS) as readers,
        tqdm(total=total, initial=done, unit="pictures", desc=pictures.split) as progress,
    ):

        def batches() -> Iterator[Batch]:
            for start in range(done, total, batch_size):
                indices = range(start, min(start + batch_size, total))
                batch = _features(network, backbone.image_size, pictures, indices, readers)
                progress.update(len(indices))
                yield batch

        _write(writer, pictures.split, batches(), np.dtype(dtype), shard_rows)
    outcome = _outcome(writer, pictures.split)
    if outcome.rows and outcome.rows == outcome.unreadable:
        writer.forget(pictures.split)
        raise FeatureFileError(
            f"none of the {outcome.rows} pictures of split {pictures.split!r} can be read; is this "
            "the right data set?"
        )
    return outcome


def convert_tfrecords(
    pattern: str, split: str, writer: FeatureWriter, *, dtype: str, shard_rows: int = 10_000
) -> Extracted:
    """Writes a split from TFRecord files with `repr` and `label`; see `read_tfrecords`.

    Records are counted first: a folder knows how many rows a split has before they are there.

    Raises:
        FeatureFileError: a file is damaged, a label is not one of the folder's classes, or
            features are too large for `dtype`.
    """
    classes = len(writer.manifest["dataset"]["class_names"])
    total = sum(len(_known(labels, classes)) for _, labels in read_tfrecords(pattern))
    done = writer.begin(split, total, shard_rows)
    left = _without_first(map(Batch._make, read_tfrecords(pattern)), done)
    with tqdm(total=total, initial=done, unit="rows", desc=split) as progress:

        def batches() -> Iterator[Batch]:
            for batch in left:
                progress.update(len(batch.labels))
                yield batch

        _write(writer, split, batches(), np.dtype(dtype), shard_rows)
    return _outcome(writer, split)


def _known(labels: np.ndarray, classes: int) -> np.ndarray:
    """Labels, if all of them are classes."""
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise FeatureFileError(
            f"labels must lie in 0..{classes - 1}, as there are {classes} class names; found "
            f"{low if low < 0 else high}."
        )
    return labels


def _features(
    network: Any,
    size: int,
    pictures: PictureSet,
    indices: Sequence[int],
    readers: ThreadPoolExecutor,
) -> Batch:
    """The rows of some pictures; NaN where one cannot be read."""
    labels = np.asarray([pictures.label(index) for index in indices], np.int32)
    read = list(readers.map(lambda index: _square(pictures, index), indices))
    good = [picture for picture in read if picture is not None]
    if len({picture.shape for picture in good}) > 1:
        good = [center_square(picture, size) for picture in good]
    # Where a batch has none, a black square tells how wide a row is.
    made = network(tf.constant(np.stack(good or [np.zeros((size, size, 3), np.uint8)]))).numpy()
    rows = np.full((len(indices), made.shape[1]), np.nan, np.float32)
    if good:
        rows[[picture is not None for picture in read]] = made
    return Batch(rows, labels)


def _square(pictures: PictureSet, index: int) -> np.ndarray | None:
    """The middle square of a picture in its own resolution; None if it cannot be read."""
    try:
        picture = pictures.picture(index)
        return center_square(picture, min(picture.shape[:2]))
    except Exception:  # whatever a decoder raises for a damaged file
        return None


def _write(
    writer: FeatureWriter,
    split: str,
    batches: Iterable[Batch],
    dtype: np.dtype,
    shard_rows: int,
) -> None:
    """Gathers batches into shards of exactly `shard_rows` rows, the last one excepted."""
    waiting: list[Batch] = []
    for batch in batches:
        waiting.append(Batch(_fitting(batch.features, dtype), batch.labels))
        while sum(len(b.labels) for b in waiting) >= shard_rows:
            features, labels = map(np.concatenate, zip(*waiting, strict=True))
            _append(writer, split, Batch(features[:shard_rows], labels[:shard_rows]))
            waiting = [Batch(features[shard_rows:], labels[shard_rows:])]
    if sum(len(b.labels) for b in waiting):
        _append(writer, split, Batch(*map(np.concatenate, zip(*waiting, strict=True))))


def _fitting(features: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The features in this format; infinite in it they would pass for unreadable pictures."""
    largest = float(np.max(np.abs(features), initial=0.0, where=np.isfinite(features)))
    if largest > np.finfo(dtype).max:
        raise FeatureFileError(
            f"a feature of {largest:.4g} does not fit {dtype}, which ends at "
            f"{np.finfo(dtype).max:.4g}: extract with --dtype=float32, into another folder."
        )
    return features.astype(dtype)


def _append(writer: FeatureWriter, split: str, rows: Batch) -> None:
    unreadable = int((~np.isfinite(rows.features).all(axis=1)).sum())
    writer.append(split, rows.features, rows.labels, unreadable)


def _without_first(batches: Iterator[Batch], count: int) -> Iterator[Batch]:
    """The batches without their first `count` rows."""
    for batch in batches:
        if count < len(batch.labels):
            yield Batch(batch.features[count:], batch.labels[count:])
            break
        count -= len(batch.labels)
    yield from batches


def _outcome(writer: FeatureWriter, split: str) -> Extracted:
    entry = writer.manifest["splits"][split]
    return Extracted(sum(shard["rows"] for shard in entry["shards"]), entry["unreadable"])
