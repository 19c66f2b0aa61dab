"""Features on disk: shards of .npy files, and a manifest that says what they are."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfdp.files import FileLock, LockedError, unfinished, write_whole
from tfdp.transfer.feature_table import FeatureTable

MANIFEST = "manifest.json"
_FORMAT = 1


class FeatureFileError(ValueError):
    """A feature file or folder that is missing, damaged, or not what its manifest says."""


class NpyPart:
    """The rows of a .npy file; each slice is read from disk, and nothing is mapped.

    A memory map would count the whole file as this process's memory once it has been read.

    Args:
        path: The file: float16 or float32 `[N, D]`.

    Raises:
        FeatureFileError: The file is missing, cut short, or not such an array.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        try:
            with open(path, "rb") as file:
                version = np.lib.format.read_magic(file)
                read = (
                    np.lib.format.read_array_header_1_0
                    if version == (1, 0)
                    else np.lib.format.read_array_header_2_0
                )
                self.shape, fortran, self.dtype = read(file)
                self._offset = file.tell()
        except FileNotFoundError:
            raise FeatureFileError(f"{path}: this shard is missing.") from None
        except ValueError as error:
            raise FeatureFileError(f"{path}: not a .npy file ({error}).") from error
        if len(self.shape) != 2 or fortran or self.dtype.kind != "f":
            raise FeatureFileError(
                f"{path}: expected floats [N, D] in C order, got {self.dtype} {self.shape}."
            )
        expected = self._offset + self.shape[0] * self._row_bytes
        if self._path.stat().st_size != expected:
            raise FeatureFileError(
                f"{path}: has {self._path.stat().st_size} bytes where {expected} are expected."
            )

    @property
    def _row_bytes(self) -> int:
        return self.shape[1] * self.dtype.itemsize

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self.shape[0])
        count = max(0, stop - start)
        offset = self._offset + start * self._row_bytes
        flat = np.fromfile(self._path, self.dtype, count * self.shape[1], offset=offset)
        return flat.reshape(count, self.shape[1])


class Batch(NamedTuple):
    """Some examples on their way into shards: features `[B, D]` and labels `[B]`."""

    features: np.ndarray
    labels: np.ndarray


class Extracted(NamedTuple):
    """What a split contains now.

    Attributes:
        examples: Examples in the folder, those of earlier runs included.
        unreadable: Pictures that could not be read. Their features are NaN: methods skip them.
    """

    examples: int
    unreadable: int


class FeatureFolder:
    """Reads a folder that `FeatureWriter` wrote.

    Args:
        path: The folder.
        verify: Whether to compare every file with its checksum (reads everything once).

    Raises:
        FeatureFileError: There is no manifest, it is damaged, or a shard is missing or is not
            what the manifest says.
    """

    def __init__(self, path: str | os.PathLike[str], verify: bool = False) -> None:
        self.path = Path(path)
        self.manifest = read_manifest(self.path)
        if verify:
            for shard in self._shards():
                for kind in ("features", "labels"):
                    self._verify(shard[kind], shard["sha256"][kind])

    @property
    def splits(self) -> list[str]:
        """Names of the splits."""
        return list(self.manifest["splits"])

    @property
    def num_classes(self) -> int:
        """K, as the dataset states it."""
        return len(self.manifest["dataset"]["class_names"])

    def table(self, split: str) -> FeatureTable:
        """Returns the examples of a split; features stay on disk.

        Raises:
            FeatureFileError: There is no such split, or it is unfinished.
        """
        if split not in self.manifest["splits"]:
            raise FeatureFileError(f"{self.path}: has no split {split!r}, only {self.splits}.")
        entry = self.manifest["splits"][split]
        present = sum(shard["rows"] for shard in entry["shards"])
        if present != entry["rows"]:
            raise FeatureFileError(
                f"{self.path}: split {split!r} is unfinished, {present} of {entry['rows']} rows; "
                "run the extraction again to complete it."
            )
        parts = [NpyPart(self.path / shard["features"]) for shard in entry["shards"]]
        labels = [self._labels(shard) for shard in entry["shards"]]
        for shard, part, own in zip(entry["shards"], parts, labels, strict=True):
            if not shard["rows"] == part.shape[0] == len(own):
                raise FeatureFileError(
                    f"{self.path / shard['features']}: has {part.shape[0]} rows and {len(own)} "
                    f"labels, but the manifest says {shard['rows']}."
                )
        return FeatureTable(parts, labels, self.num_classes)

    def _labels(self, shard: Mapping[str, Any]) -> np.ndarray:
        file = self.path / shard["labels"]
        try:
            return np.load(file, allow_pickle=False)
        except FileNotFoundError:
            raise FeatureFileError(f"{file}: these labels are missing.") from None
        except (ValueError, EOFError) as error:
            raise FeatureFileError(f"{file}: not a .npy file ({error}).") from error

    def _shards(self) -> Iterable[Mapping[str, Any]]:
        for entry in self.manifest["splits"].values():
            yield from entry["shards"]

    def _verify(self, name: str, digest: str) -> None:
        file = self.path / name
        if not file.is_file():
            raise FeatureFileError(f"{file}: this shard is missing.")
        if _sha256(file) != digest:
            raise FeatureFileError(f"{file}: does not have the checksum of the manifest.")


class FeatureWriter:
    """Writes a folder shard by shard, and continues one that is there already.

    Args:
        path: The folder.
        header: What the features are: backbone, preprocessing, dataset, dtype. A folder that
            holds other features is rejected.

    Raises:
        FeatureFileError: The folder holds features of another kind.
    """

    def __init__(self, path: str | os.PathLike[str], header: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self._header = header
        self.manifest: dict[str, Any] = {"format": _FORMAT, **header, "splits": {}}
        self._continue()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other writers out, after reading what they have written.

        Each holds the whole manifest: two at once would remove each other's shards.

        Raises:
            FeatureFileError: Another one is writing, or has begun features of another kind.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            lock = FileLock(self.path / f".{MANIFEST}.lock")
        except LockedError as error:
            raise FeatureFileError(
                f"{self.path}: is being written by {error}: wait for it to end, or choose another "
                "output folder."
            ) from None
        try:
            self._continue()
            yield
        finally:
            lock.release()

    def _continue(self) -> None:
        """Continues the manifest that is there, if it is of the same features."""
        if (self.path / MANIFEST).exists():
            found = read_manifest(self.path)
            differing = [k for k in self._header if found.get(k) != self._header[k]]
            if differing:
                raise FeatureFileError(
                    f"{self.path}: holds features of another kind; {', '.join(differing)} differ. "
                    "Choose another output folder, or delete this one."
                )
            self.manifest = found

    def begin(self, split: str, rows: int, shard_rows: int) -> int:
        """Opens a split and returns the number of examples that are already there."""
        entry = self.manifest["splits"].setdefault(
            split, {"rows": rows, "shard_rows": shard_rows, "unreadable": 0, "shards": []}
        )
        if (entry["rows"], entry["shard_rows"]) != (rows, shard_rows):
            raise FeatureFileError(
                f"{self.path}: split {split!r} was begun with {entry['rows']} rows in shards of "
                f"{entry['shard_rows']}, and now has {rows} in shards of {shard_rows}. Use the "
                "earlier settings, or another output folder."
            )
        kept = []
        for shard in entry["shards"]:
            if not all((self.path / shard[kind]).is_file() for kind in ("features", "labels")):
                break
            kept.append(shard)
        entry["shards"] = kept
        entry["unreadable"] = sum(shard["unreadable"] for shard in kept)
        self._save()
        return sum(shard["rows"] for shard in kept)

    def write(self, split: str, batches: Iterable[Batch]) -> Extracted:
        """Gathers batches into shards of exactly `shard_rows` examples, the last one excepted.

        Raises:
            FeatureFileError: A feature is too large for the dtype of the folder.
        """
        dtype = np.dtype(self.manifest["dtype"])
        size = self.manifest["splits"][split]["shard_rows"]
        waiting: list[Batch] = []
        for batch in batches:
            waiting.append(Batch(_fitting(batch.features, dtype), batch.labels))
            while sum(len(b.labels) for b in waiting) >= size:
                features, labels = map(np.concatenate, zip(*waiting, strict=True))
                self.append(split, features[:size], labels[:size])
                waiting = [Batch(features[size:], labels[size:])]
        if sum(len(b.labels) for b in waiting):
            self.append(split, *map(np.concatenate, zip(*waiting, strict=True)))
        entry = self.manifest["splits"][split]
        return Extracted(sum(shard["rows"] for shard in entry["shards"]), entry["unreadable"])

    def append(self, split: str, features: np.ndarray, labels: np.ndarray) -> None:
        """Writes the next shard and records it; features that are not finite were unreadable."""
        unreadable = int((~np.isfinite(features).all(axis=1)).sum())
        entry = self.manifest["splits"][split]
        number = len(entry["shards"])
        names = {kind: f"{split}/{kind}-{number:05d}.npy" for kind in ("features", "labels")}
        digests = {
            "features": _write_npy(self.path / names["features"], features),
            "labels": _write_npy(self.path / names["labels"], labels.astype(np.int32)),
        }
        entry["shards"].append(
            {**names, "rows": len(labels), "unreadable": unreadable, "sha256": digests}
        )
        entry["unreadable"] += unreadable
        self._save()

    def forget(self, split: str) -> None:
        """Removes a split from the manifest, so that it is begun anew."""
        del self.manifest["splits"][split]
        self._save()

    def _save(self) -> None:
        write_whole(self.path / MANIFEST, json.dumps(self.manifest, indent=1) + "\n")


def read_manifest(path: Path) -> dict[str, Any]:
    """Returns the manifest of a feature folder.

    Raises:
        FeatureFileError: There is none, or it is damaged.
    """
    file = path / MANIFEST
    try:
        manifest = json.loads(file.read_text())
    except FileNotFoundError:
        raise FeatureFileError(
            f"{path}: not a feature folder, it has no {MANIFEST}. Make one with "
            "python -m launch.extract_features."
        ) from None
    except ValueError as error:
        raise FeatureFileError(f"{file}: is damaged ({error}).") from error
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise FeatureFileError(f"{file}: not a manifest of format {_FORMAT}.")
    names = (manifest.get("dataset") or {}).get("class_names")
    if not isinstance(names, list) or not isinstance(manifest.get("splits"), dict):
        raise FeatureFileError(f"{file}: is damaged, it has no class_names or no splits.")
    return manifest


def _fitting(features: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Returns features in this format; infinite in it they would pass for unreadable pictures."""
    largest = float(np.max(np.abs(features), initial=0.0, where=np.isfinite(features)))
    if largest > np.finfo(dtype).max:
        raise FeatureFileError(
            f"a feature of {largest:.4g} does not fit in {dtype}, whose largest number is "
            f"{np.finfo(dtype).max:.4g}: extract with --dtype=float32, into another folder."
        )
    return features.astype(dtype)


def _write_npy(path: Path, array: np.ndarray) -> str:
    """Writes a .npy file that appears whole or not at all; returns its SHA-256."""
    with unfinished(path) as partial:
        with open(partial, "wb") as file:
            np.save(file, array)
        return _sha256(partial)


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
