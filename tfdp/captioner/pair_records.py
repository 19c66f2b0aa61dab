"""Picture-caption pairs as records of ArrayRecord files, and the manifest of such files."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Pair:
    """One record.

    Attributes:
      image: Encoded picture (PNG, JPEG, WebP, ...), path of one, or pixels uint8 `[H, W, 3]`.
      caption: What it shows.
      label: Index of its coarse category, -1 if it has none.
      concept: What it is about; pictures of one concept are on one side of the split.
      source: Where it comes from, such as "noto:red-apple".
    """

    image: bytes | str | os.PathLike | np.ndarray
    caption: str
    label: int = -1
    concept: str = ""
    source: str = ""


def read_manifest(folder: str | os.PathLike) -> dict[str, Any]:
    """Returns the manifest of a folder of pairs: counts, splits, labels, licences.

    Raises:
      FileNotFoundError: If there is none.
      ValueError: If it is damaged, or that of something else.
    """
    path = Path(folder) / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} not found: {folder} does not hold prepared pairs. Make them with "
            "`python -m launch.prepare_data`."
        )
    try:
        manifest = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(
            f"{path} is damaged ({error}): copy it again, or make the pairs anew in another folder."
        ) from error
    if not isinstance(manifest, dict) or not {"splits", "labels"} <= manifest.keys():
        raise ValueError(
            f"{path} is no manifest of prepared pairs, it has no splits or no labels: name the "
            "folder that `python -m launch.prepare_data` made."
        )
    return manifest


def encode_pair(pair: Pair) -> bytes:
    """Returns a pair with an encoded picture as a serialized `tf.train.Example`."""
    texts = {"image": pair.image, "caption": pair.caption.encode()}
    texts |= {"concept": pair.concept.encode(), "source": pair.source.encode()}
    feature = {
        name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[text]))
        for name, text in texts.items()
    }
    feature["label"] = tf.train.Feature(int64_list=tf.train.Int64List(value=[pair.label]))
    example = tf.train.Example(features=tf.train.Features(feature=feature))
    return example.SerializeToString(deterministic=True)


def decode_pair(record: bytes) -> Pair:
    """Returns the pair in a serialized `tf.train.Example`."""
    feature = tf.train.Example.FromString(record).features.feature
    return Pair(
        image=feature["image"].bytes_list.value[0],
        caption=feature["caption"].bytes_list.value[0].decode(),
        label=feature["label"].int64_list.value[0],
        concept=feature["concept"].bytes_list.value[0].decode(),
        source=feature["source"].bytes_list.value[0].decode(),
    )
