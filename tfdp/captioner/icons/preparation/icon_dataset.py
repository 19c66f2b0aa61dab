"""Making a dataset of icons, from the npm package to ArrayRecord files."""

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tfdp.captioner.icons.preparation.icon_files import write_attribution, write_split
from tfdp.captioner.icons.preparation.icon_names import LABELS, is_held_out
from tfdp.captioner.icons.preparation.icon_package import IconPackage, PreparationError
from tfdp.captioner.icons.preparation.icon_rendering import Drawn, Stage, decode
from tfdp.captioner.icons.preparation.icon_selection import Plan, Recipe, make_plan
from tfdp.captioner.pairs import MANIFEST, read_manifest
from tfdp.files import write_whole

_SPLITS = ("train", "test")
_STAGE = "unfinished"
_LISTED_FAILURES = 50


def prepare_icons(
    package: IconPackage,
    recipe: Recipe,
    output: Path,
    limit: int | None = None,
    processes: int = 2,
) -> dict[str, Any]:
    """Renders, removes duplicates, splits by concept and writes; continues what was interrupted.

    Whether or not it was interrupted, the files are the same.

    Args:
        package: The icons.
        recipe: Which of them, and how.
        output: Folder of the result: shards, `manifest.json`, `ATTRIBUTION.md`.
        limit: At most this many pictures before duplicates are removed, for a trial.
        processes: Processes that render.

    Returns:
        The manifest.

    Raises:
        PreparationError: If the folder holds something else, or the disk is too small.
    """
    plan = make_plan(package, recipe, limit)
    if not plan.items:
        raise PreparationError("there is no picture to render: the package holds none that fits.")
    finished = _finished(output, plan)
    if finished:
        return finished
    _check_disk(output, plan)
    stage_folder = output / _STAGE
    _claim(stage_folder, plan)
    stage = Stage(stage_folder, plan)
    stage.render_missing(package, processes)
    manifest = _assemble(package, plan, stage, output)
    shutil.rmtree(stage_folder)
    return manifest


def _finished(output: Path, plan: Plan) -> dict[str, Any] | None:
    """The manifest of the same dataset, if it is already there."""
    if not (output / MANIFEST).exists():
        return None
    manifest = read_manifest(output)
    if manifest.get("fingerprint") != plan.fingerprint:
        raise PreparationError(
            f"{output} already holds the dataset {manifest.get('name')!r} made with other "
            "settings or from another version; choose another --output or remove it."
        )
    return manifest


def _check_disk(output: Path, plan: Plan) -> None:
    """Rejects a disk that is too small: pictures lie on it twice for a moment."""
    each = 400 + plan.recipe.image_size**2 * 0.3
    needed = int(2.2 * each * len(plan.items)) + 50_000_000
    existing = next(folder for folder in (output, *output.absolute().parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise PreparationError(
            f"{output} needs about {needed / 1e9:.1f} GB of free disk, there are "
            f"{free / 1e9:.1f} GB: free some space or choose another --output."
        )


def _claim(stage_folder: Path, plan: Plan) -> None:
    """Marks the unfinished pictures as those of this plan; rejects those of another."""
    stage_folder.mkdir(parents=True, exist_ok=True)
    mark = stage_folder / "fingerprint"
    if mark.exists() and mark.read_text() != plan.fingerprint:
        raise PreparationError(
            f"{stage_folder} holds an unfinished preparation with other settings: finish it with "
            f"the same flags, or remove {stage_folder}."
        )
    mark.write_text(plan.fingerprint)


def _assemble(package: IconPackage, plan: Plan, stage: Stage, output: Path) -> dict[str, Any]:
    """Writes the final files from the rendered pictures."""
    recipe = plan.recipe
    results = list(stage.drawn())
    failed = [result for result in results if result.failure]
    drawn = [result for result in results if not result.failure]
    kept = _without_duplicates(drawn, stage, recipe)
    kept.sort(key=lambda result: result.item.rank)  # shuffled: any part of a file is a fair sample
    splits = {}
    for split in _SPLITS:
        members = [
            result
            for result in kept
            if is_held_out(result.item.concept, recipe.held_out) == (split == "test")
        ]
        splits[split] = write_split(split, members, stage, recipe, output)
    manifest = {
        "name": recipe.name,
        "image_size": recipe.image_size,
        "labels": list(LABELS),
        "splits": splits,
        "sources": _sources(package, kept),
        "left_out": plan.left_out | _losses(failed, len(drawn) - len(kept)),
        "broken_pictures": [
            {"source": result.item.source, "reason": result.failure}
            for result in failed
            if result.failure != "blank"
        ][:_LISTED_FAILURES],
        "package": {"name": "@iconify/json", "version": plan.version},
        "fingerprint": plan.fingerprint,
    }
    write_attribution(output / "ATTRIBUTION.md", manifest)
    write_whole(output / MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")
    return manifest


def _without_duplicates(drawn: list[Drawn], stage: Stage, recipe: Recipe) -> list[Drawn]:
    """Drops what is there already, as strictly as the recipe says."""
    digests = [result.pixels for result in drawn]
    if not recipe.near_duplicates:
        captions = [result.item.caption for result in drawn]
        held_out = [is_held_out(result.item.concept, recipe.held_out) for result in drawn]
        return _unmarked(drawn, equal_pairs(digests, captions, held_out))
    unique = _unmarked(drawn, equal_pictures(digests))
    images = stage.images(result.place for result in unique)
    thumbnails = np.stack([thumbnail(decode(image)) for image in images])
    return _unmarked(unique, similar_pictures(thumbnails, [r.item.concept for r in unique]))


def _unmarked(results: list[Drawn], marks: np.ndarray) -> list[Drawn]:
    return [result for result, mark in zip(results, marks, strict=True) if not mark]


def _sources(package: IconPackage, kept: Sequence[Drawn]) -> list[dict[str, Any]]:
    """Who made the pictures, under which licenses."""
    counts = Counter(result.item.prefix for result in kept)
    sources = []
    for prefix, count in sorted(counts.items()):
        info = package.collections[prefix]
        sources.append(
            {
                "set": prefix,
                "name": info["name"],
                "author": info["author"]["name"],
                "url": info["author"].get("url", ""),
                "license": info["license"]["spdx"],
                "license_url": info["license"].get("url", ""),
                "num_examples": count,
            }
        )
    return sources


def _losses(failed: Sequence[Drawn], duplicates: int) -> dict[str, int]:
    blank = sum(result.failure == "blank" for result in failed)
    losses = {"blank": blank, "broken": len(failed) - blank, "duplicate": duplicates}
    return {reason: count for reason, count in losses.items() if count}


_SIDE = 16  # of the thumbnails that are compared
# Root mean square differences below which two pictures look the same, in units of the full range.
_NEAR = 0.02
_NEAR_IN_CONCEPT = 0.06
_BLOCK = 1024


def equal_pictures(digests: Sequence[str]) -> np.ndarray:
    """Marks pictures whose digest occurred before, bool `[N]`."""
    seen: set[str] = set()
    marks = np.zeros(len(digests), bool)
    for i, digest in enumerate(digests):
        marks[i] = digest in seen
        seen.add(digest)
    return marks


def equal_pairs(
    digests: Sequence[str], captions: Sequence[str], held_out: Sequence[bool]
) -> np.ndarray:
    """Marks pairs that add nothing, or that would show a picture of one split to the other.

    A picture may come back under another name, but not with the same one, and not on the other
    side of the split.

    Args:
        digests: Of the pixels, `[N]`.
        captions: `[N]`.
        held_out: Whether each pair belongs to the test split, `[N]`.

    Returns:
        bool `[N]`.
    """
    side: dict[str, bool] = {}
    seen: set[tuple[str, str]] = set()
    marks = np.zeros(len(digests), bool)
    for i, (digest, caption, test) in enumerate(zip(digests, captions, held_out, strict=True)):
        marks[i] = (digest, caption) in seen or side.setdefault(digest, test) != test
        seen.add((digest, caption))
    return marks


def similar_pictures(thumbnails: np.ndarray, concepts: Sequence[str]) -> np.ndarray:
    """Marks pictures that look like an earlier one that stays, bool `[N]`.

    Pictures of one concept may differ by more than pictures of two: a clock at seven is not a
    duplicate of a clock at eight, but two red apples of nearly the same drawing are.

    Args:
        thumbnails: float32 `[N, D]` from `thumbnail`, in order of precedence.
        concepts: What each picture is about, `[N]`.
    """
    count, width = thumbnails.shape
    norms = np.einsum("nd,nd->n", thumbnails, thumbnails)
    concept_ids = np.unique(np.asarray(concepts), return_inverse=True)[1]
    marks = np.zeros(count, bool)
    for start in range(0, count, _BLOCK):
        block, before = slice(start, start + _BLOCK), slice(0, start + _BLOCK)
        squares = norms[block, None] + norms[None, before]
        squares -= 2 * thumbnails[block] @ thumbnails[before].T
        same = concept_ids[block, None] == concept_ids[None, before]
        close = squares < width * np.where(same, _NEAR_IN_CONCEPT, _NEAR) ** 2
        for row, neighbors in enumerate(close, start):
            marks[row] = bool(np.any(neighbors[:row] & ~marks[:row]))
    return marks


def thumbnail(picture: np.ndarray) -> np.ndarray:
    """Returns a picture's 16 x 16 colors in [0, 1], float32 `[768]`: its perceptual hash."""
    small = Image.fromarray(picture).resize((_SIDE, _SIDE), Image.Resampling.BOX)
    return np.asarray(small, np.float32).ravel() / 255
