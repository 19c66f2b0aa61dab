"""A folder of features: shards, and a manifest that says what they are."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tfdp.files import FileLock, LockedError, write_whole
from tfdp.transfer.rows import Rows
from tfdp.transfer.store.shards import FeatureFileError, NpyPart, sha256, write_npy

MANIFEST = "manifest.json"
_FORMAT = 1


class FeatureFolder:
    """Reads a folder that `FeatureWriter` wrote.

    Args:
        path: the folder.
        verify: whether to compare every file with its checksum (reads everything once).

    Raises:
        FeatureFileError: there is no manifest, it is damaged, or a shard is missing or is not
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
        """K, as the data set states it."""
        return len(self.manifest["dataset"]["class_names"])

    def rows(self, split: str) -> Rows:
        """The rows of a split; features stay on disk.

        Raises:
            FeatureFileError: there is no such split, or it is unfinished.
        """
        if split not in self.manifest["splits"]:
            raise FeatureFileError(f"{self.path}: has no split {split!r}, only {self.splits}.")
        entry = self.manifest["splits"][split]
        present = sum(shard["rows"] for shard in entry["shards"])
        if present != entry["rows"]:
            raise FeatureFileError(
                f"{self.path}: split {split!r} is unfinished, {present} of {entry['rows']} rows; "
                "run the extraction again to go on."
            )
        parts = [NpyPart(self.path / shard["features"]) for shard in entry["shards"]]
        labels = [self._labels(shard) for shard in entry["shards"]]
        for shard, part, own in zip(entry["shards"], parts, labels, strict=True):
            if not shard["rows"] == part.shape[0] == len(own):
                raise FeatureFileError(
                    f"{self.path / shard['features']}: has {part.shape[0]} rows and {len(own)} "
                    f"labels where the manifest says {shard['rows']}."
                )
        return Rows(parts, labels, self.num_classes)

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
        if sha256(file) != digest:
            raise FeatureFileError(f"{file}: does not have the checksum of the manifest.")


class FeatureWriter:
    """Writes a folder shard by shard; what is there already is kept.

    Args:
        path: the folder.
        header: what the features are: backbone, preprocessing, dataset, dtype. A folder that
            holds other features is refused.

    Raises:
        FeatureFileError: the folder holds features of another kind.
    """

    def __init__(self, path: str | os.PathLike[str], header: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self._header = header
        self.manifest: dict[str, Any] = {"format": _FORMAT, **header, "splits": {}}
        self._take_up()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other writers out, after taking up what they have written.

        Each holds the whole book: two at once would strike out each other's shards.

        Raises:
            FeatureFileError: one is at it already, or has begun features of another kind.
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
            self._take_up()
            yield
        finally:
            lock.release()

    def _take_up(self) -> None:
        """Goes on with the book that is there, if it is of the same features."""
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
        """Opens a split and returns the number of rows that are already done."""
        entry = self.manifest["splits"].setdefault(
            split, {"rows": rows, "shard_rows": shard_rows, "unreadable": 0, "shards": []}
        )
        if (entry["rows"], entry["shard_rows"]) != (rows, shard_rows):
            raise FeatureFileError(
                f"{self.path}: split {split!r} was begun with {entry['rows']} rows in shards of "
                f"{entry['shard_rows']}, now {rows} in shards of {shard_rows}."
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

    def append(self, split: str, features: np.ndarray, labels: np.ndarray, unreadable: int) -> None:
        """Writes the next shard and books it."""
        entry = self.manifest["splits"][split]
        number = len(entry["shards"])
        names = {kind: f"{split}/{kind}-{number:05d}.npy" for kind in ("features", "labels")}
        digests = {
            "features": write_npy(self.path / names["features"], features),
            "labels": write_npy(self.path / names["labels"], labels.astype(np.int32)),
        }
        entry["shards"].append(
            {**names, "rows": len(labels), "unreadable": unreadable, "sha256": digests}
        )
        entry["unreadable"] += unreadable
        self._save()

    def forget(self, split: str) -> None:
        """Takes a split out of the book, so that it is begun anew."""
        del self.manifest["splits"][split]
        self._save()

    def _save(self) -> None:
        write_whole(self.path / MANIFEST, json.dumps(self.manifest, indent=1) + "\n")


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a feature folder.

    Raises:
        FeatureFileError: there is none, or it is damaged.
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
