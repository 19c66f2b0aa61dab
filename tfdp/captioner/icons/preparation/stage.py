"""Rendering in batches that survive an interruption."""

import json
import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from array_record.python.array_record_module import ArrayRecordReader
from tqdm import tqdm

from tfdp.captioner.icons.preparation.catalog import IconPackage, IconSet
from tfdp.captioner.icons.preparation.plan import Item, Plan
from tfdp.captioner.icons.preparation.render import Rendered, render
from tfdp.data.array_records import RANDOM_ACCESS, write_records
from tfdp.files import write_whole

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
        readers: dict[int, ArrayRecordReader] = {}
        for place in places:
            batch, row = divmod(place, _BATCH)
            if batch not in readers:
                readers[batch] = ArrayRecordReader(str(self._pictures(batch)), RANDOM_ACCESS)
            yield readers[batch].read([row])[0]

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
