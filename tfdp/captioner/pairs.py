"""Random access to picture-caption pairs: in memory, or in ArrayRecord files."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from array_record.python.array_record_module import ArrayRecordReader

from tfdp.captioner.pair_records import MANIFEST, Pair, decode_pair, read_manifest
from tfdp.data.array_records import RANDOM_ACCESS


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
                "records must be a folder or a sequence of (image, caption) with __len__ and "
                f"__getitem__, got an object of type {type(items).__name__}."
            )
        if len(items) == 0:
            raise ValueError("records is empty.")
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
        self._paths = [_checked(Path(folder), shard) for shard in splits[split]["files"]]
        counts = [shard["num_examples"] for shard in splits[split]["files"]]
        self._ends = np.cumsum(counts)
        self._readers: dict[int, ArrayRecordReader] = {}

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read(self, indices: Sequence[int]) -> list[Pair | Exception]:
        """Returns the pairs at `indices`."""
        wanted = np.asarray(indices, np.int64)
        if wanted.size and not 0 <= wanted.min() <= wanted.max() < len(self):
            raise IndexError(f"indices must be in [0, {len(self)}).")
        shards = np.searchsorted(self._ends, wanted, side="right")
        pairs: list[Pair | Exception] = [KeyError()] * len(wanted)
        for shard in np.unique(shards).tolist():
            rows = np.flatnonzero(shards == shard).tolist()
            start = 0 if shard == 0 else int(self._ends[shard - 1])
            places = [int(wanted[row]) - start for row in rows]
            for row, pair in zip(rows, self._read_shard(shard, places), strict=True):
                pairs[row] = pair
        return pairs

    def _read_shard(self, shard: int, places: list[int]) -> list[Pair | Exception]:
        """Reads records of one file; if that fails, one by one, to lose only the bad ones."""
        reader = self._reader(shard)
        try:
            return [decode_pair(record) for record in reader.read(places)]
        except Exception as error:
            if len(places) == 1:
                return [error]
            return [self._read_shard(shard, [place])[0] for place in places]

    def _reader(self, shard: int) -> ArrayRecordReader:
        if shard not in self._readers:
            self._readers[shard] = ArrayRecordReader(str(self._paths[shard]), RANDOM_ACCESS)
        return self._readers[shard]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_readers": {}}


def _checked(folder: Path, shard: dict[str, Any]) -> Path:
    """The path of a shard, if it is there and whole."""
    path = folder / shard["file"]
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing, though {folder / MANIFEST} lists it.")
    if path.stat().st_size != shard["bytes"]:
        raise ValueError(
            f"{path} has {path.stat().st_size} bytes instead of {shard['bytes']}: it is damaged or "
            "was copied only in part."
        )
    return path
