"""Naming the people whose pictures a data set holds."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tfdp.captioner.icons.preparation.icon_names import LABELS
from tfdp.captioner.icons.preparation.icon_rendering import Drawn, Stage
from tfdp.captioner.icons.preparation.icon_selection import Recipe
from tfdp.captioner.pairs import Pair, encode_pair
from tfdp.data.array_records import write_records

_LICENSE_NAMES = {
    "Apache-2.0": "Apache License 2.0, https://www.apache.org/licenses/LICENSE-2.0",
    "BSD-3-Clause": "BSD 3-Clause License, https://opensource.org/license/bsd-3-clause",
    "CC-BY-3.0": "Creative Commons Attribution 3.0, https://creativecommons.org/licenses/by/3.0/",
    "CC-BY-4.0": "Creative Commons Attribution 4.0, https://creativecommons.org/licenses/by/4.0/",
    "CC0-1.0": "CC0 1.0 Universal, https://creativecommons.org/publicdomain/zero/1.0/",
    "ISC": "ISC License, https://opensource.org/license/isc-license-txt",
    "MIT": "MIT License, https://opensource.org/license/mit",
    "OFL-1.1": "SIL Open Font License 1.1, https://openfontlicense.org/",
    "Unlicense": "The Unlicense, https://unlicense.org/",
}

_MIT = """\
Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
associated documentation files (the "Software"), to deal in the Software without restriction,
including without limitation the rights to use, copy, modify, merge, publish, distribute,
sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial
portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES
OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""


def write_attribution(path: Path, manifest: dict[str, Any]) -> None:
    """Writes who made the pictures, under which licenses, and what was changed."""
    size = manifest["image_size"]
    licenses = sorted({source["license"] for source in manifest["sources"]})
    lines = [
        f"# The pictures of the data set {manifest['name']!r}",
        "",
        "The pictures come from the icon sets below, as packed in the npm package "
        f"`{manifest['package']['name']}` {manifest['package']['version']}. They were changed: "
        f"drawn as {size} x {size} pixels on white, blank and duplicate pictures left out, and "
        "captioned with their cleaned names. Each set is the work of its authors, who do not "
        "endorse this data set.",
        "",
        "| set | name | author | license | pictures |",
        "|---|---|---|---|---|",
        *(_row(source) for source in manifest["sources"]),
        "",
        "Licenses:",
        "",
        *(f"- {name}: {_LICENSE_NAMES[name]}" for name in licenses),
    ]
    if "MIT" in licenses:
        holders = [s["author"] for s in manifest["sources"] if s["license"] == "MIT"]
        names = ", ".join(dict.fromkeys(holders))
        lines += ["", f"The sets under the MIT License: Copyright (c) {names}.", "", _MIT.rstrip()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _row(source: dict[str, Any]) -> str:
    author = f"[{source['author']}]({source['url']})" if source["url"] else source["author"]
    license_ = source["license"]
    if source["license_url"]:
        license_ = f"[{license_}]({source['license_url']})"
    cells = (source["set"], source["name"], author, license_, source["num_examples"])
    return "| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |"


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
