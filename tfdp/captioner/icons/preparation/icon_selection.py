"""Which pictures go into which dataset."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from tfdp.captioner.icons.preparation.icon_names import (
    Concepts,
    Namer,
    emoji_captions,
    has_skin_tone,
    is_emoji,
    region_flags,
    spaced_forms,
)
from tfdp.captioner.icons.preparation.icon_package import IconPackage, IconSet


@dataclass(frozen=True)
class Recipe:
    """How a dataset of icons is made.

    Attributes:
        name: Name of the dataset.
        image_size: Pixels along a side.
        sets: Prefixes of the icon sets in order of precedence; None takes all permissive ones.
        held_out: Share of the concepts in the test split.
        max_words: Longest caption; longer names are lists of keywords.
        variants: Whether to keep skin tones, and several styles or sizes of one name in a set.
        withdrawn: Whether to take pictures that a set offered once and hides today.
        near_duplicates: Whether pictures that look the same are dropped. If not, only what
            equals another in picture and caption is.
        brand_sets: Sets of logos; pictures elsewhere that bear only such a name are dropped.
        group_size: Records compressed together: 1 for random access on disk, more for size.
        shard_size: Records in a file.
    """

    name: str
    image_size: int
    sets: tuple[str, ...] | None
    held_out: float
    max_words: int
    variants: bool
    withdrawn: bool
    near_duplicates: bool
    brand_sets: tuple[str, ...]
    group_size: int
    shard_size: int


ICONS_SMALL = Recipe(
    name="icons_small",
    image_size=32,
    sets=(
        "noto",
        "twemoji",
        "fluent-emoji-flat",
        "fluent-emoji",
        "noto-v1",
        "emojione",
        "streamline-emojis",
        "fxemoji",
        "flat-color-icons",
        "circle-flags",
        "icon-park",
        "fluent-color",
        "streamline-ultimate-color",
        "streamline-color",
        "streamline-plump-color",
        "streamline-kameleon-color",
        "flat-ui",
    ),
    held_out=0.1,
    max_words=6,
    variants=False,
    withdrawn=False,
    near_duplicates=True,
    brand_sets=("fa7-brands", "logos", "simple-icons"),
    group_size=64,
    shard_size=16_384,
)

ICONS = Recipe(
    name="icons",
    image_size=64,
    sets=None,
    held_out=0.1,
    max_words=12,
    variants=True,
    withdrawn=True,
    near_duplicates=False,
    brand_sets=(),
    group_size=1,
    shard_size=8192,
)

RECIPES = {recipe.name: recipe for recipe in (ICONS_SMALL, ICONS)}


_FORMAT = 1  # part of the fingerprint: raise it when the same plan gives other files
_FLAG_SETS = frozenset({"cif", "circle-flags", "flag", "flagpack"})
_UNSPACED_SETS = frozenset({"fxemoji"})


@dataclass(frozen=True)
class Item:
    """One picture to render.

    Attributes:
        prefix: Its icon set.
        name: Its name in the set.
        caption: What it shows.
        concept: What it is about; see `Concepts.of`.
        label: Index into `LABELS`, or -1.
        precedence: Of equal pictures, the one with the lowest stays.
    """

    prefix: str
    name: str
    caption: str
    concept: str
    label: int
    precedence: int

    @property
    def source(self) -> str:
        """Icon set and name, as Iconify writes them."""
        return f"{self.prefix}:{self.name}"

    @property
    def rank(self) -> str:
        """Sorting by it shuffles, the same way each time."""
        return hashlib.sha256(self.source.encode()).hexdigest()


@dataclass(frozen=True)
class Plan:
    """The pictures of a dataset in order of rendering (set by set).

    Attributes:
        recipe: What it follows.
        version: Version of the package.
        items: The pictures.
        left_out: Reason -> number of names that were left out.
    """

    recipe: Recipe
    version: str
    items: tuple[Item, ...]
    left_out: dict[str, int]

    @property
    def fingerprint(self) -> str:
        """Equal for plans that give equal files."""
        content = [_FORMAT, self.version, asdict(self.recipe), [asdict(i) for i in self.items]]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def make_plan(package: IconPackage, recipe: Recipe, limit: int | None = None) -> Plan:
    """Decides which pictures belong to a dataset.

    Args:
        package: The icons.
        recipe: What to take.
        limit: At most this many pictures, chosen evenly over the sets; None takes all.
    """
    prefixes = list(recipe.sets or package.permissive())
    left_out: Counter[str] = Counter()
    chooser = _Chooser(package, recipe, left_out)
    items = [
        item
        for precedence, icons in enumerate(package.load_all(prefixes))
        for item in chooser.choose(icons, precedence)
    ]
    if limit is not None:
        items = sorted(items, key=lambda item: item.rank)[:limit]
    items.sort(key=lambda item: (item.precedence, item.name))
    return Plan(recipe, package.version, tuple(items), dict(sorted(left_out.items())))


class _Chooser:
    """Chooses and captions the pictures of one set after the other."""

    def __init__(self, package: IconPackage, recipe: Recipe, left_out: Counter[str]):
        self._recipe = recipe
        self._left_out = left_out
        self._concepts = Concepts(package)
        self._flags = region_flags(package)
        self._brands = _brand_names(package.load_all(recipe.brand_sets))
        known = [p for p in ("noto", "twemoji", "fluent-emoji-flat") if p in package.collections]
        self._spaced = spaced_forms(sorted(emoji_captions(package.load_all(known))))

    def choose(self, icons: IconSet, precedence: int) -> Iterable[Item]:
        """The pictures to take of a set."""
        namer = Namer(icons)
        names = icons.all_names if self._recipe.withdrawn else icons.names
        known = set(names)
        category_of = {n: c for c, members in icons.categories.items() for n in members}
        chosen: dict[str, Item] = {}
        for name in names:
            caption = self._caption(icons, namer, name)
            reason = self._objection(icons, name, known, caption)
            if reason:
                self._left_out[reason] += 1
                continue
            item = Item(
                prefix=icons.prefix,
                name=name,
                caption=caption,
                concept=self._concepts.of(caption),
                label=self._concepts.label(caption, category_of.get(name)),
                precedence=precedence,
            )
            self._keep(chosen, item)
        return chosen.values()

    def _caption(self, icons: IconSet, namer: Namer, name: str) -> str:
        caption = namer.caption(name)
        if icons.prefix in _FLAG_SETS:
            return self._flags.get(caption.replace(" ", "-"), "")
        if icons.prefix in _UNSPACED_SETS:
            return self._spaced.get(name, "")
        return caption

    def _objection(self, icons: IconSet, name: str, names: set[str], caption: str) -> str | None:
        """Why a picture is left out, or None."""
        if not re.search("[a-z]{2}|^[a-z]$", caption):
            return "no readable name"
        if not self._recipe.variants and is_emoji(icons) and has_skin_tone(name, names):
            return "skin tone"
        if len(caption.split()) > self._recipe.max_words:
            return "name too long"
        if caption in self._brands and not is_emoji(icons):
            return "brand"
        return None

    def _keep(self, chosen: dict[str, Item], item: Item) -> None:
        """Adds an item; without variants, the last of a name (largest, most colored) stays."""
        if self._recipe.variants:
            chosen[item.name] = item
            return
        other = chosen.get(item.caption)
        if other is not None:
            self._left_out["other style or size"] += 1
        if other is None or (len(item.name), item.name) > (len(other.name), other.name):
            chosen[item.caption] = item


def _brand_names(sets: Iterable[IconSet]) -> set[str]:
    return {name.replace("-", " ") for icons in sets for name in icons.data["icons"]}
