"""Files that are there whole or not at all, and that one process at a time writes."""

from tfdp.files.lock import FileLock, LockedError
from tfdp.files.whole import unfinished, write_durably, write_whole

__all__ = ["FileLock", "LockedError", "unfinished", "write_durably", "write_whole"]
