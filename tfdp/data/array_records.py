"""ArrayRecord files: records with random access."""

from collections.abc import Iterator
from pathlib import Path

from array_record.python.array_record_module import ArrayRecordWriter

from tfdp.files import unfinished

# Options of a reader of single records: no read-ahead, no threads of its own.
RANDOM_ACCESS = "readahead_buffer_size:0,max_parallelism:0"


def write_records(path: Path, records: Iterator[bytes], group_size: int) -> int:
    """Writes an ArrayRecord file, whole or not at all; returns the number of records.

    Args:
      path: Where.
      records: What, in order.
      group_size: Records compressed together; 1 reads fastest, more takes less space.
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
