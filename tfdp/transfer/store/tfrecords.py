"""Features in TFRecord files, in the format of Mehta, Krichene et al. 2022 (arXiv 2211.13403)."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from tfdp.transfer.store.shards import FeatureFileError

_BATCH = 4096
_FLOATS = tf.io.VarLenFeature(tf.float32)
#: TensorFlow's message holds the damaged bytes, which Python then cannot read as text.
_UNREADABLE = (tf.errors.OpError, UnicodeDecodeError)


def read_tfrecords(pattern: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches of features and labels from TFRecord files.

    Each record is a `tf.train.Example` with `repr`, floats `[D]`, and `label`, one integer.

    Args:
        pattern: a file, or a glob pattern; files are read in the order of their names.

    Yields:
        float32 `[B, D]` and int64 `[B]`.

    Raises:
        FeatureFileError: no file matches, a file is damaged, or records differ in width.
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
    """The number of floats in the first record."""
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
    """What TensorFlow said, without the names of its ops."""
    if not isinstance(error, tf.errors.OpError):
        return "it holds bytes that are no record"
    return re.sub(r"{{.*?}} ?| ?\[Op:.*", "", error.message.splitlines()[0])
