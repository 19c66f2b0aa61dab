"""Which captions name the same thing, and to which coarse category it belongs."""

import hashlib
from collections.abc import Iterable

from tfdp.captioner.icons.preparation.catalog import IconPackage, IconSet
from tfdp.captioner.icons.preparation.names import Namer, concept_key, flag_caption, is_emoji

# The groups of Unicode's emoji.
LABELS = (
    "smileys & emotion",
    "people & body",
    "animals & nature",
    "food & drink",
    "travel & places",
    "activities",
    "objects",
    "symbols",
    "flags",
)
UNLABELLED = -1

# Sets whose own categories are exactly Unicode's groups, the most complete first.
_GROUPED = ("noto", "twemoji", "fluent-emoji-flat", "noto-v1")
# Categories of other sets that say the same as one of the groups.
_SYNONYMS = {
    "activity": "activities",
    "animals": "animals & nature",
    "animals nature": "animals & nature",
    "ecology": "animals & nature",
    "ecologynature": "animals & nature",
    "food": "food & drink",
    "food drink": "food & drink",
    "fooddrink": "food & drink",
    "fooddrinks": "food & drink",
    "foods": "food & drink",
    "maptravel": "travel & places",
    "natureecology": "animals & nature",
    "places": "travel & places",
    "sport": "activities",
    "sports": "activities",
    "travel": "travel & places",
    "travel places": "travel & places",
}
_SKIN_TONES = frozenset({"1f3fb", "1f3fc", "1f3fd", "1f3fe", "1f3ff"})
_EMOJI_SETS = ("emojione", "fluent-emoji-flat", "noto", "noto-v1", "twemoji")


class Concepts:
    """Groups captions by what they name, across sets.

    Captions with the same key are one concept, and so are names of one emoji: those of the same
    code points in different sets, and the aliases that a set lists.
    """

    def __init__(self, package: IconPackage):
        self._parent: dict[str, str] = {}
        self._labels: dict[str, int] = {}
        sets = {p: package.load(p) for p in _EMOJI_SETS if p in package.collections}
        namers = {prefix: Namer(icons) for prefix, icons in sets.items()}
        names_of: dict[str, str] = {}
        for prefix, icons in sets.items():
            self._link_code_points(icons, namers[prefix], names_of)
            self._link_aliases(icons, namers[prefix])
        for prefix in _GROUPED:
            if prefix in sets:
                self._note_labels(sets[prefix], namers[prefix])

    def of(self, caption: str) -> str:
        """The concept of a caption: one key for all that must stay on one side of a split."""
        return self._find(concept_key(caption))

    def label(self, caption: str, category: str | None) -> int:
        """Index into `LABELS`: the group of the emoji so named, else of the set's category."""
        known = self._labels.get(self.of(caption))
        if known is not None or category is None:
            return UNLABELLED if known is None else known
        return category_label(category)

    def _link_code_points(self, icons: IconSet, namer: Namer, names_of: dict[str, str]) -> None:
        for code_points, name in sorted(icons.code_points.items()):
            parts = [part for part in code_points.split("-") if part != "fe0f"]
            if not _SKIN_TONES & set(parts):
                caption = namer.caption(name)
                self._link(names_of.setdefault("-".join(parts), caption), caption)

    def _link_aliases(self, icons: IconSet, namer: Namer) -> None:
        for alias, name in sorted(icons.aliases.items()):
            if name in icons.data["icons"] and "tone" not in alias:
                self._link(flag_caption(alias.replace("-", " ")), namer.caption(name))

    def _note_labels(self, icons: IconSet, namer: Namer) -> None:
        for category, names in sorted(icons.categories.items()):
            label = category_label(category)
            for name in names if label != UNLABELLED else ():
                self._labels.setdefault(self.of(namer.caption(name)), label)

    def _find(self, key: str) -> str:
        while key in self._parent:
            key = self._parent[key]
        return key

    def _link(self, one: str, other: str) -> None:
        """Makes two captions one concept; the alphabetically first key stands for it."""
        first, last = sorted((self.of(one), self.of(other)))
        if first != last:
            self._parent[last] = first


def category_label(category: str) -> int:
    """Index into `LABELS` of a set's own category, `UNLABELLED` if it says something else."""
    name = category.lower()
    name = _SYNONYMS.get(name, name)
    return LABELS.index(name) if name in LABELS else UNLABELLED


def is_held_out(concept: str, share: float) -> bool:
    """Whether a concept belongs to the test split: decided by its name alone.

    The same concept is held out of every data set made with this function.
    """
    digest = hashlib.sha256(concept.encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def region_flags(package: IconPackage) -> dict[str, str]:
    """Region code ("no", "gb-sct") -> "flag of norway", from the emoji of flags."""
    flags: dict[str, str] = {}
    for prefix in ("noto", "twemoji"):
        if prefix not in package.collections:
            continue
        icons = package.load(prefix)
        namer = Namer(icons)
        for code_points, name in icons.code_points.items():
            code = _region(code_points.split("-"))
            if code:
                flags.setdefault(code, namer.caption(name))
    return flags


def emoji_captions(sets: Iterable[IconSet]) -> set[str]:
    """Captions of every emoji in the sets."""
    captions: set[str] = set()
    for icons in sets:
        if is_emoji(icons):
            captions.update(map(Namer(icons).caption, icons.names))
    return captions


def _region(parts: list[str]) -> str | None:
    """Spells the region of a flag emoji: regional indicators, or tags after a black flag."""
    points = [int(part, 16) for part in parts]
    if len(points) == 2 and all(0x1F1E6 <= point <= 0x1F1FF for point in points):
        return "".join(chr(point - 0x1F1E6 + ord("a")) for point in points)
    if points[0] == 0x1F3F4 and len(points) > 4 and points[-1] == 0xE007F:
        tags = "".join(chr(point - 0xE0000) for point in points[1:-1])
        return f"{tags[:2]}-{tags[2:]}"
    return None
