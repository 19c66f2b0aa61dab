"""Writing the pictures of a split into ArrayRecord files."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tfdp.captioner.icons.preparation.concepts import LABELS
from tfdp.captioner.icons.preparation.recipes import Recipe
from tfdp.captioner.icons.preparation.stage import Drawn, Stage
from tfdp.captioner.pair_records import Pair, encode_pair
from tfdp.data.array_records import write_records


def write_split(
    split: str, members: Sequence[Drawn], stage: Stage, recipe: Recipe, output: Path
) -> dict[str, Any]:
    """Writes the shards of one split.

    Returns:
      Its entry in the manifest: counts, and size and checksum of each file.
    """
    shards = -(-len(members) // recipe.shard_size)
    files = []
    for shard in tqdm(range(shards), unit="file", desc=f"writing {split}"):
        part = members[shard * recipe.shard_size : (shard + 1) * recipe.shard_size]
        path = output / f"{split}-{shard:05d}-of-{shards:05d}.array_record"
        count = write_records(path, _records(part, stage), recipe.group_size)
        content = path.read_bytes()
        files.append(
            {
                "file": path.name,
                "num_examples": count,
                "bytes": len(content),
                "sha256": hashlib.sha256(content).hexdigest(),
            }
        )
    labels = Counter(result.item.label for result in members)
    return {
        "num_examples": len(members),
        "concepts": len({result.item.concept for result in members}),
        "examples_per_label": [labels[label] for label in range(len(LABELS))],
        "files": files,
    }


def _records(members: Sequence[Drawn], stage: Stage) -> Iterator[bytes]:
    images = stage.images(member.place for member in members)
    for member, image in zip(members, images, strict=True):
        item = member.item
        yield encode_pair(Pair(image, item.caption, item.label, item.concept, item.source))
