"""From the name of an icon to a caption, and from a caption to the concept it names."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable

from tfdp.captioner.icons.preparation.icon_package import IconPackage, IconSet

SKIN_TONES = ("light", "medium-light", "medium", "medium-dark", "dark")

# Words that name how a picture is drawn. They are cut from the end of a name where the set
# declares them, or where at least one name in twenty ends so.
_STYLES = frozenset(
    "24px alerted alt badged bold broken compact duo duotone expressive f fill filled flat light "
    "line linear loop o one outline outlined regular remix rounded sharp solid thin tone two "
    "twotone".split()
)
_COMMON = 0.05
# Words after which a number is a part of the name.
_COUNTED = frozenset(
    "battery beaufort big box circle clock counter dice digit filter frame hexagon keycap level "
    "looks number numbers numeric octagon page pentagon people roman square step triangle "
    "volume wifi window".split()
)
_WHO = frozenset("boy girl man men people person woman women older young".split())
_MINOR = frozenset("a and for of on symbol the with facing left-facing right-facing".split())


class Namer:
    """Makes captions of the names of one set."""

    def __init__(self, icons: IconSet):
        names = icons.names
        self._names = set(names)
        self._emoji = is_emoji(icons)
        self._prefixes = _declared(icons.data.get("prefixes"))
        self._suffixes = _declared(icons.data.get("suffixes"))
        ends = Counter(name.rsplit("-", 1)[-1] for name in names)
        self._styles = {
            word for word in _STYLES if not self._emoji and ends[word] >= _COMMON * len(names)
        }

    def caption(self, name: str) -> str:
        """Words of the name, lower case, without words for style, size and variant."""
        if self._emoji and has_skin_tone(name, self._names) and "skin-tone" not in name:
            name = f"{name}-skin-tone"
        for prefix in self._prefixes:
            name = name.removeprefix(f"{prefix}-")
        for suffix in self._suffixes:
            name = name.removesuffix(f"-{suffix}")
        words = re.sub(r"[^a-z0-9]+", " ", name.lower()).split()
        while len(words) > 1 and (words[-1] in self._styles or self._is_variant(words)):
            words.pop()
        caption = re.sub(r"\bo ?clock\b", "o'clock", " ".join(words))
        return flag_caption(caption) if self._emoji else caption

    def _is_variant(self, words: list[str]) -> bool:
        """Whether the last word numbers a variant or a size."""
        if not re.fullmatch(r"\d+(px)?", words[-1]):
            return False
        return words[-2] not in _COUNTED and not words[-2].isdigit()


def is_emoji(icons: IconSet) -> bool:
    """Whether the pictures of a set are emoji, named as in Unicode."""
    return icons.info.get("category") == "Emoji" or icons.prefix == "fluent-emoji"


def flag_caption(caption: str) -> str:
    """ "flag norway", "flag for norway" and "flag for flag norway" as "flag of norway"."""
    return re.sub(r"^flag (for )?(flag )?(?!of\b|in\b)(?=\w)", "flag of ", caption)


def concept_key(caption: str) -> str:
    """What a caption is about, as a key: the same for variants that must not be split.

    Order of words, plurals, gender, skin tone and direction make no new concept.
    """
    text = re.sub(r"\b(medium )?(light|medium|dark) skin tone\b", "", caption)
    text = re.sub(r"\bfacing (left|right)\b", "", text)
    words = [_singular(word) for word in text.split()]
    core = [w for w in words if w not in _WHO and w not in _MINOR]
    return " ".join(sorted(set(core or words)))


def has_skin_tone(name: str, names: set[str]) -> bool:
    """Whether an emoji is a skin-tone variant of another one in the set."""
    if re.search(r"skin-tone|-type-[1-6]\b", name):
        return True
    for tone in SKIN_TONES:
        base = name.removesuffix(f"-{tone}")
        if base != name and all(f"{base}-{other}" in names for other in ("light", "medium-dark")):
            return True
    return False


def spaced_forms(captions: Iterable[str]) -> dict[str, str]:
    """ "oldkey" -> "old key": to read names that were written without spaces."""
    return {caption.replace(" ", "").replace("'", ""): caption for caption in captions}


def _declared(styles: dict[str, str] | None) -> list[str]:
    """Declared prefixes or suffixes, the longest first."""
    return sorted(filter(None, styles or {}), key=len, reverse=True)


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


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
UNLABELED = -1

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
            return UNLABELED if known is None else known
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
            for name in names if label != UNLABELED else ():
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
    """Index into `LABELS` of a set's own category, `UNLABELED` if it says something else."""
    name = category.lower()
    name = _SYNONYMS.get(name, name)
    return LABELS.index(name) if name in LABELS else UNLABELED


def is_held_out(concept: str, share: float) -> bool:
    """Whether a concept belongs to the test split: decided by its name alone.

    The same concept is held out of every dataset made with this function.
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
