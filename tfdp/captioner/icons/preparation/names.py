"""From the name of an icon to a caption, and from a caption to the concept it names."""

import re
from collections import Counter
from collections.abc import Iterable

from tfdp.captioner.icons.preparation.catalog import IconSet

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
