"""Which icon sets may be used, and how their pictures are found in the @iconify/json package."""

import functools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfdp.captioner.icons.preparation.errors import PreparationError

# Licences that let anyone use, change and pass on the pictures, at most naming the author.
# Share-alike, non-commercial and copyleft sets are left out.
PERMISSIVE = frozenset(
    {
        "Apache-2.0",
        "BSD-3-Clause",
        "CC-BY-3.0",
        "CC-BY-4.0",
        "CC0-1.0",
        "ISC",
        "MIT",
        "OFL-1.1",  # the licence of a font does not extend to pictures of its glyphs
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
        """SPDX name of the licence."""
        return self.info["license"]["spdx"]

    @property
    def names(self) -> list[str]:
        """Names of the pictures that the set still offers, sorted; brands left out."""
        return [name for name in self.all_names if not self.data["icons"][name].get("hidden")]

    @functools.cached_property
    def all_names(self) -> list[str]:
        """Names of all pictures, those too that the set offered once; brands left out."""
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
        """Prefixes of the sets under permissive licences that are not logos, sorted."""
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
