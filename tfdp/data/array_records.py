"""ArrayRecord files: records with random access."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter

from tfdp.files import unfinished

# Options of a reader of single records: no read-ahead, no threads of its own.
_RANDOM_ACCESS = "readahead_buffer_size:0,max_parallelism:0"


def write_records(path: Path, records: Iterator[bytes], group_size: int) -> int:
    """Writes an ArrayRecord file, whole or not at all.

    Args:
        path: The file to write.
        records: What it holds, in order.
        group_size: Records compressed together; 1 reads fastest, more takes less space.

    Returns:
        The number of records written.
    """
    compression = "uncompressed" if group_size == 1 else "zstd:19"
    count = 0
    with unfinished(path) as partial:
        writer = ArrayRecordWriter(str(partial), f"group_size:{group_size},{compression}")
        try:
            for record in records:
                writer.write(record)
                count += 1
        finally:
            writer.close()
    return count


class RecordFiles:
    """The records of several ArrayRecord files, numbered through.

    Args:
        paths: The files.
        counts: Records in each.
    """

    def __init__(self, paths: Sequence[Path], counts: Sequence[int]):
        self._paths = list(paths)
        self._ends = np.cumsum(counts)
        self._readers: dict[int, ArrayRecordReader] = {}

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read(self, indices: Sequence[int]) -> list[bytes | Exception]:
        """The records at `indices`; an exception in the place of each that cannot be read.

        Raises:
            IndexError: An index is out of range.
        """
        wanted = np.asarray(indices, np.int64)
        if wanted.size and not 0 <= wanted.min() <= wanted.max() < len(self):
            raise IndexError(f"indices must be in [0, {len(self)}).")
        files = np.searchsorted(self._ends, wanted, side="right")
        found: dict[int, bytes | Exception] = {}
        for file in np.unique(files).tolist():
            rows = np.flatnonzero(files == file)
            start = 0 if file == 0 else int(self._ends[file - 1])
            places = (wanted[rows] - start).tolist()
            found.update(zip(rows.tolist(), self._read_file(file, places), strict=True))
        return [found[row] for row in range(len(wanted))]

    def _read_file(self, file: int, places: list[int]) -> list[bytes | Exception]:
        """Reads records of one file; if that fails, one by one, to lose only the bad ones."""
        if file not in self._readers:
            self._readers[file] = ArrayRecordReader(str(self._paths[file]), _RANDOM_ACCESS)
        try:
            return list(self._readers[file].read(places))
        except Exception as error:
            if len(places) == 1:
                return [error]
            return [self._read_file(file, [place])[0] for place in places]
