"""From SVG to a small square picture."""

import hashlib
import io
import json
import multiprocessing
import signal
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import resvg_py
from PIL import Image
from tqdm import tqdm

from tfdp.captioner.icons.preparation.icon_package import IconPackage, IconSet
from tfdp.captioner.icons.preparation.icon_selection import Item, Plan
from tfdp.data.array_records import RecordFiles, write_records
from tfdp.files import write_whole

_WHITE = "#ffffff"
_NAMESPACES = {"": "http://www.w3.org/2000/svg", "xlink": "http://www.w3.org/1999/xlink"}
# A picture whose darkest and brightest values differ by less shows nothing.
_LEAST_CONTRAST = 24


@dataclass(frozen=True)
class Rendered:
    """A picture, or why there is none.

    Attributes:
        image: Lossless WebP; empty if it could not be rendered.
        pixels: Digest of the pixels: equal for equal pictures.
        failure: Why there is no picture: "blank", or what the renderer said.
    """

    image: bytes = b""
    pixels: str = ""
    failure: str = ""


def render(svg: str, size: int) -> Rendered:
    """Draws an SVG on white, centered in a square of `size` pixels, never raising.

    Fonts of the system are not used, so that the result depends on the SVG alone.
    """
    try:
        picture = rasterize(final_frame(svg), size)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the renderer is no Exception
        return Rendered(failure=" ".join(str(error).split())[:200] or type(error).__name__)
    if int(picture.max()) - int(picture.min()) < _LEAST_CONTRAST:
        return Rendered(failure="blank")
    return Rendered(encode(picture), hashlib.sha256(picture.tobytes()).hexdigest()[:32])


def rasterize(svg: str, size: int) -> np.ndarray:
    """Returns the picture, uint8 `[size, size, 3]`.

    Raises:
        ValueError: If the SVG cannot be drawn.
    """
    root = ElementTree.fromstring(svg)
    width, height = float(root.get("width", size)), float(root.get("height", size))
    wide = width >= height
    png = resvg_py.svg_to_bytes(
        svg_string=svg,
        background=_WHITE,
        skip_system_fonts=True,
        width=size if wide else None,
        height=None if wide else size,
    )
    drawn = Image.open(io.BytesIO(bytes(png))).convert("RGB")
    canvas = Image.new("RGB", (size, size), _WHITE)
    canvas.paste(drawn, ((size - drawn.width) // 2, (size - drawn.height) // 2))
    return np.asarray(canvas)


def encode(picture: np.ndarray) -> bytes:
    """Returns the picture as lossless WebP."""
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "WEBP", lossless=True, quality=80, method=4)
    return file.getvalue()


def decode(image: bytes) -> np.ndarray:
    """Returns the pixels of an encoded picture, uint8 `[H, W, 3]`."""
    return np.asarray(Image.open(io.BytesIO(image)).convert("RGB"))


def final_frame(svg: str) -> str:
    """Shows animations that draw a picture once ("freeze") as they end, not as they begin."""
    if "<animate" not in svg:
        return svg
    for prefix, uri in _NAMESPACES.items():
        ElementTree.register_namespace(prefix, uri)
    root = ElementTree.fromstring(svg)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith("}animate") and child.get("fill") == "freeze":
                end = child.get("to") or child.get("values", "").split(";")[-1]
                if child.get("attributeName") and end:
                    parent.set(child.get("attributeName", ""), end.strip())
                parent.remove(child)
    return ElementTree.tostring(root, encoding="unicode")


_BATCH = 4096  # pictures that an interruption can cost


@dataclass(frozen=True)
class Drawn:
    """What rendering made of an item: its place in the stage, or why there is none."""

    item: Item
    place: int
    pixels: str
    failure: str


class Stage:
    """The folder where rendered pictures wait until all of them are there.

    Batch i holds the pictures of items `[4096 i, 4096 (i + 1))` in one file, and what became of
    each in another, which is written last: a batch is there when that file is.
    """

    def __init__(self, folder: Path, plan: Plan):
        self._folder = folder
        self._plan = plan
        self._batches = -(-len(plan.items) // _BATCH)

    def render_missing(self, package: IconPackage, processes: int) -> None:
        """Renders the batches that are not there yet, with a progress bar."""
        missing = [i for i in range(self._batches) if not self._report(i).exists()]
        total, size = len(self._plan.items), self._plan.recipe.image_size
        self._folder.mkdir(parents=True, exist_ok=True)
        todo = sum(len(self._items(i)) for i in missing)
        with (
            tqdm(total=total, initial=total - todo, unit="picture", desc="rendering") as bar,
            _mapper(processes) as map_in_order,
        ):
            work = ((svg, size) for svg in _svgs(package, map(self._items, missing)))
            rendered = map_in_order(_render, work)
            for batch in missing:
                results = []
                for _ in self._items(batch):
                    results.append(next(rendered))
                    bar.update()
                self._write(batch, results)

    def drawn(self) -> Iterator[Drawn]:
        """What became of each item, in the order of the plan."""
        for batch in range(self._batches):
            report = json.loads(self._report(batch).read_text())
            place = batch * _BATCH
            for item, entry in zip(self._items(batch), report, strict=True):
                yield Drawn(item, place, entry["pixels"], entry["failure"])
                place += not entry["failure"]

    def images(self, places: Iterable[int]) -> Iterator[bytes]:
        """The encoded pictures at `places`."""
        paths = [self._pictures(batch) for batch in range(self._batches)]
        files = RecordFiles(paths, [_BATCH] * self._batches)
        for place in places:
            [image] = files.read([place])
            if isinstance(image, Exception):
                raise image
            yield image

    def _items(self, batch: int) -> tuple[Item, ...]:
        return self._plan.items[batch * _BATCH : (batch + 1) * _BATCH]

    def _report(self, batch: int) -> Path:
        return self._folder / f"{batch:05d}.json"

    def _pictures(self, batch: int) -> Path:
        return self._folder / f"{batch:05d}.array_record"

    def _write(self, batch: int, results: list[Rendered]) -> None:
        images = (result.image for result in results if not result.failure)
        write_records(self._pictures(batch), images, group_size=1)
        report = [{"pixels": r.pixels, "failure": r.failure} for r in results]
        write_whole(self._report(batch), json.dumps(report))


def _svgs(package: IconPackage, batches: Iterable[tuple[Item, ...]]) -> Iterator[str]:
    """The SVG of each item; sets are read one at a time, as items come set by set."""
    icons: IconSet | None = None
    for items in batches:
        for item in items:
            if icons is None or icons.prefix != item.prefix:
                icons = package.load(item.prefix)
            yield icons.svg(item.name)


def _render(task: tuple[str, int]) -> Rendered:
    return render(*task)


@contextmanager
def _mapper(processes: int) -> Iterator[Callable[..., Iterator[Rendered]]]:
    """A `map` that keeps the order, in this process or in several."""
    if processes == 1:
        yield map
        return
    # Not forked: TensorFlow, loaded here, does not survive a fork.
    with multiprocessing.get_context("spawn").Pool(processes, _leave_interrupts) as pool:
        yield lambda function, work: pool.imap(function, work, chunksize=64)


def _leave_interrupts() -> None:
    """Leaves Ctrl-C to the parent process, which ends its children without their complaints."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
