"""A package of a few icons, laid out as the npm package @iconify/json."""

import json
from pathlib import Path
from typing import Any

_NEXT = iter(range(1, 10**6))


def square(color: str = "") -> dict[str, Any]:
    """An icon: a square in a colour of its own, unless one is asked for."""
    number = next(_NEXT)
    color = color or f"#{(number * 40503) % 0xE00000:06x}"
    return {"body": f'<path fill="{color}" d="M2 2h{4 + number % 9}v10H2z"/>'}


def write_package(folder: Path, sets: dict[str, dict[str, Any]]) -> Path:
    """Writes the package.

    Args:
        folder: where.
        sets: prefix -> the set's JSON, with "license" and "category" for `collections.json`.
    """
    (folder / "json").mkdir(parents=True)
    collections = {}
    for prefix, data in sets.items():
        collections[prefix] = {
            "name": prefix.title(),
            "author": {"name": f"The {prefix} authors", "url": f"https://example.org/{prefix}"},
            "license": {"spdx": data.get("license", "MIT"), "url": "https://example.org/license"},
            "category": data.get("category", "UI 24px"),
        }
        (folder / "json" / f"{prefix}.json").write_text(json.dumps(data))
    (folder / "collections.json").write_text(json.dumps(collections))
    (folder / "package.json").write_text(json.dumps({"version": "1.2.3"}))
    return folder


def small_package(folder: Path) -> Path:
    """A package with everything that preparation must cope with."""
    blue = square("#0000ff")
    tones = ("light", "medium-light", "medium", "medium-dark", "dark")
    return write_package(
        folder,
        {
            "noto": {
                "category": "Emoji",
                "license": "Apache-2.0",
                "icons": {
                    "red-apple": square(),
                    "man-juggling": square(),
                    "woman-juggling": square(),
                    "three-oclock": square(),
                    "flag-norway": square(),
                    "waving-hand": square(),
                    **{f"waving-hand-{tone}-skin-tone": square() for tone in tones},
                    "old-key": square() | {"hidden": True},
                },
                "aliases": {"apple-fruit": {"parent": "red-apple"}},
                "chars": {"1f34e": "red-apple", "1f1f3-1f1f4": "flag-norway"},
                "categories": {
                    "Food & Drink": ["red-apple"],
                    "People & Body": ["man-juggling", "woman-juggling", "waving-hand"],
                    "Flags": ["flag-norway"],
                },
            },
            "fluent-emoji-flat": {
                "category": "Emoji",
                "icons": {
                    "apple": square(),
                    "clapping-hands": square(),
                    **{f"clapping-hands-{tone}": square() for tone in tones},
                },
                "chars": {"1f34e": "apple"},
            },
            "circle-flags": {"icons": {"no": square(), "xx-nowhere": square()}},
            "fxemoji": {"category": "Emoji", "icons": {"redapple": square(), "gma": square()}},
            "plain": {
                "license": "CC-BY-4.0",
                "suffixes": {"": "Plain", "outline": "Outline"},
                "categories": {"Animals": ["tiny-dog"], "Brand": ["acme"]},
                "width": 24,
                "height": 24,
                "icons": {
                    "tiny-dog": square(),
                    "tiny-dog-outline": square(),
                    "blue-box": blue,
                    "blue-box-outline": dict(blue),
                    "once": square() | {"hidden": True},
                    "acme": square(),
                    "acme-logo": square(),
                    "wide": square() | {"width": 48},
                    "nothing": {"body": "<g/>"},
                    "broken": {"body": "<path d='M0 0'><g>"},
                    **{f"thing-{word}": square() for word in ("ax", "bell", "cup", "door")},
                },
            },
            "brandy": {"category": "Logos", "icons": {"shop": square()}},
            "sharealike": {"license": "CC-BY-SA-4.0", "icons": {"tree": square()}},
        },
    )
