"""Picture-caption pairs with random access: in memory, or in ArrayRecord files."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from tfdp.data.array_records import RecordFiles

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
    """Returns the manifest of a folder of pairs: counts, splits, labels, licenses.

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
            f"{path} is damaged ({error}): copy it again, or prepare the pairs again in another "
            "folder."
        ) from error
    if not isinstance(manifest, dict) or not {"splits", "labels"} <= manifest.keys():
        raise ValueError(
            f"{path} is not a manifest of prepared pairs: it has no splits or no labels. Name the "
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


class Pairs(Protocol):
    """Random access to pairs. A pair that cannot be read is returned as the exception."""

    def __len__(self) -> int: ...

    def read(self, indices: Sequence[int]) -> list[Pair | Exception]:
        """Returns the pairs at `indices`."""
        ...


class PairList:
    """Pairs in a sequence: `(image, caption)` or `Pair` objects."""

    def __init__(self, items: Sequence[Any]):
        if not (hasattr(items, "__len__") and hasattr(items, "__getitem__")):
            raise TypeError(
                "pairs must be a folder or a sequence of (image, caption) with __len__ and "
                f"__getitem__, got an object of type {type(items).__name__}."
            )
        if len(items) == 0:
            raise ValueError("pairs is empty.")
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def read(self, indices: Sequence[int]) -> list[Pair | Exception]:
        """Returns the pairs at `indices`."""
        return [self._read_one(int(index)) for index in indices]

    def _read_one(self, index: int) -> Pair | Exception:
        try:
            item = self._items[index]
            return item if isinstance(item, Pair) else Pair(*item)
        except Exception as error:  # whatever the sequence raises, it is this record's fault
            return error


class PairFiles:
    """Pairs in a folder of ArrayRecord shards that `launch.prepare_data` made.

    Attributes:
        manifest: The content of `manifest.json`.
    """

    def __init__(self, folder: str | os.PathLike, split: str):
        """Opens one split.

        Raises:
            FileNotFoundError: If the folder, its manifest or one of its files is missing.
            ValueError: If there is no such split, or a file has another size than it should.
        """
        self.manifest = read_manifest(folder)
        splits = self.manifest["splits"]
        if split not in splits:
            raise ValueError(f"split must be one of {sorted(splits)}, got {split!r}.")
        if not splits[split]["files"]:
            raise ValueError(f"The split {split!r} of {folder} holds no records.")
        files = splits[split]["files"]
        paths = [_checked(Path(folder), file) for file in files]
        self._records = RecordFiles(paths, [file["num_examples"] for file in files])

    def __len__(self) -> int:
        return len(self._records)

    def read(self, indices: Sequence[int]) -> list[Pair | Exception]:
        """The pairs at `indices`; an exception in the place of each that cannot be read."""
        return [_decoded(record) for record in self._records.read(indices)]


def _decoded(record: bytes | Exception) -> Pair | Exception:
    if isinstance(record, Exception):
        return record
    try:
        return decode_pair(record)
    except Exception as error:  # whatever a damaged record raises
        return error


def _checked(folder: Path, file: dict[str, Any]) -> Path:
    """The path of a shard, if it is there and whole."""
    path = folder / file["file"]
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing, though {folder / MANIFEST} lists it.")
    if path.stat().st_size != file["bytes"]:
        raise ValueError(
            f"{path} has {path.stat().st_size} bytes instead of {file['bytes']}: it is damaged or "
            "was copied only in part."
        )
    return path
