"""Which pictures go into which data set."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Recipe:
    """How a data set of icons is made.

    Attributes:
      name: Name of the data set.
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
