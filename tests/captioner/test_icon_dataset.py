"""Making a dataset: content, interruption, and what can stand in the way."""

import dataclasses
import hashlib
import json
import shutil
import tarfile
from collections import namedtuple

import pytest

from tests.captioner.fake_package import small_package
from tfdp.captioner import CaptionTokenizer, ImageTextSource
from tfdp.captioner.icons.preparation import icon_rendering
from tfdp.captioner.icons.preparation.icon_dataset import prepare_icons
from tfdp.captioner.icons.preparation.icon_package import (
    IconPackage,
    PreparationError,
    open_package,
)
from tfdp.captioner.icons.preparation.icon_selection import ICONS
from tfdp.captioner.pairs import PairFiles

_ALL = dataclasses.replace(ICONS, name="all", image_size=16, held_out=0.3, shard_size=6)
_SMALL = dataclasses.replace(
    _ALL,
    name="small",
    sets=("noto", "fluent-emoji-flat", "circle-flags", "fxemoji", "plain"),
    variants=False,
    withdrawn=False,
    brand_sets=("brandy",),
    group_size=8,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_package(tmp_path_factory.mktemp("icons") / "package")


@pytest.fixture(scope="module")
def package(folder):
    return IconPackage(folder)


def _prepare(package, output, recipe=_ALL, **options):
    return prepare_icons(package, recipe, output, processes=1, **options)


def _pairs(output):
    splits = [PairFiles(output, split) for split in ("train", "test")]
    return [pair for files in splits for pair in files.read(range(len(files)))]


def _contents(output):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in output.iterdir()}


def test_everything_permissive_is_rendered_once(package, tmp_path):
    manifest = _prepare(package, tmp_path)
    captions = sorted(pair.caption for pair in _pairs(tmp_path))
    assert captions.count("tiny dog") == 2 and captions.count("blue box") == 1
    assert {"waving hand medium dark skin tone", "wide", "once", "old key"} <= set(captions)
    assert {"flag of norway", "red apple"} <= set(captions)
    assert not {"shop", "tree", "acme", "nothing", "broken", "gma"} & set(captions)
    assert manifest["left_out"] == {"blank": 1, "broken": 1, "duplicate": 1, "no readable name": 2}
    assert [broken["source"] for broken in manifest["broken_pictures"]] == ["plain:broken"]
    assert not (tmp_path / "unfinished").exists()
    assert "The plain authors" in (tmp_path / "ATTRIBUTION.md").read_text()


def test_the_small_set_leaves_out_skin_tones_and_variants(package, tmp_path):
    manifest = _prepare(package, tmp_path, _SMALL)
    captions = [pair.caption for pair in _pairs(tmp_path)]
    assert not any("skin tone" in caption for caption in captions)
    assert captions.count("tiny dog") == 1 and "once" not in captions
    assert manifest["left_out"]["skin tone"] == 10
    assert manifest["left_out"]["other style or size"] == 2


def test_the_result_opens_as_a_source(package, tmp_path):
    manifest = _prepare(package, tmp_path)
    tokenizer = CaptionTokenizer(["[PAD]", "[UNK]", "[START]", "[END]"])
    train = ImageTextSource(tmp_path, tokenizer, 16, 8)
    assert len(train) == manifest["splits"]["train"]["num_examples"]
    assert len(manifest["splits"]["train"]["files"]) > 1
    assert len(set(train.captions())) > 10
    assert train.captions([len(train) - 1, 0, 0]) == [train.captions()[i] for i in (-1, 0, 0)]
    assert train.pictures().min() < 200
    concepts = [{p.concept for p in PairFiles(tmp_path, s).read([0, 1])} for s in ("train", "test")]
    assert not concepts[0] & concepts[1]


def test_an_interrupted_run_continues_and_ends_the_same(package, tmp_path, monkeypatch):
    monkeypatch.setattr(icon_rendering, "_BATCH", 4)
    _prepare(package, tmp_path / "whole")
    rendered = []

    def stop_after_ten(task):
        if len(rendered) == 10:
            raise KeyboardInterrupt
        rendered.append(task)
        return icon_rendering.render(*task)

    with monkeypatch.context() as patch:
        patch.setattr(icon_rendering, "_render", stop_after_ten)
        with pytest.raises(KeyboardInterrupt):
            _prepare(package, tmp_path / "torn")
    calls = []
    with monkeypatch.context() as patch:
        patch.setattr(
            icon_rendering,
            "_render",
            lambda task: calls.append(task) or icon_rendering.render(*task),
        )
        manifest = _prepare(package, tmp_path / "torn")
    total = sum(entry["num_examples"] for entry in manifest["splits"].values())
    total += sum(manifest["left_out"][reason] for reason in ("blank", "broken", "duplicate"))
    assert len(calls) == total - 8  # two whole batches of four were kept
    assert _contents(tmp_path / "torn") == _contents(tmp_path / "whole")


def test_two_processes_give_what_one_gives(package, tmp_path):
    _prepare(package, tmp_path / "one")
    prepare_icons(package, _ALL, tmp_path / "two", processes=2)
    assert _contents(tmp_path / "one") == _contents(tmp_path / "two")


def test_a_finished_data_set_is_not_made_again(package, tmp_path, monkeypatch):
    manifest = _prepare(package, tmp_path)
    before = _contents(tmp_path)
    monkeypatch.setattr(icon_rendering, "_render", None)
    assert _prepare(package, tmp_path) == manifest
    assert _contents(tmp_path) == before
    with pytest.raises(PreparationError, match="already holds the dataset 'all' made with other"):
        _prepare(package, tmp_path, limit=3)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(ValueError, match="manifest.json is damaged"):
        _prepare(package, tmp_path)


def test_half_a_data_set_is_not_finished_with_other_settings(package, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(icon_rendering, "_render", lambda task: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            _prepare(package, tmp_path)
    with pytest.raises(PreparationError, match="unfinished preparation with other settings"):
        _prepare(package, tmp_path, limit=3)


def test_a_limit_takes_some_of_everything(package, tmp_path):
    manifest = _prepare(package, tmp_path, limit=12)
    assert sum(entry["num_examples"] for entry in manifest["splits"].values()) >= 9
    assert len(manifest["sources"]) >= 2


def test_too_small_a_disk_is_rejected_before_anything_is_drawn(package, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")(10**9, 10**9, 1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(PreparationError, match=r"needs about 0.1 GB .* there are 0.0 GB"):
        _prepare(package, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_damaged_or_missing_shard_is_named(package, tmp_path):
    _prepare(package, tmp_path)
    shard = next(tmp_path.glob("train-00000*"))
    content = shard.read_bytes()
    shard.write_bytes(content[:-1])
    with pytest.raises(ValueError, match="train-00000.* bytes instead of"):
        PairFiles(tmp_path, "train")
    shard.unlink()
    with pytest.raises(FileNotFoundError, match="train-00000.* is missing"):
        PairFiles(tmp_path, "train")


def test_a_damaged_record_costs_only_its_neighbours(package, tmp_path):
    _prepare(package, tmp_path)
    shard = next(tmp_path.glob("train-00000*"))
    content = bytearray(shard.read_bytes())
    marker = content.find(b"caption")
    content[marker : marker + 7] = b"XXXXXXX"
    shard.write_bytes(content)
    pairs = PairFiles(tmp_path, "train").read(range(6))
    assert 1 <= sum(isinstance(pair, Exception) for pair in pairs) < 6


def test_archives_and_folders_open(folder, tmp_path):
    archive = tmp_path / "icons.tgz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, "package")
    needed = "collections.json"
    assert open_package(folder, tmp_path / "work", needed) == folder
    assert open_package(folder.parent, tmp_path / "work", needed) == folder
    unpacked = open_package(archive, tmp_path / "work", needed)
    assert (
        json.loads((unpacked / needed).read_text()).keys() == IconPackage(folder).collections.keys()
    )
    assert open_package(archive, tmp_path / "work", needed) == unpacked


def test_what_is_no_package_is_named(tmp_path):
    with pytest.raises(PreparationError, match="missing does not exist"):
        open_package(tmp_path / "missing", tmp_path, "collections.json")
    with pytest.raises(PreparationError, match="is not the package: it has no collections.json"):
        open_package(tmp_path, tmp_path, "collections.json")
    (tmp_path / "text").write_text("no archive")
    with pytest.raises(PreparationError, match="neither a folder nor a .tgz"):
        open_package(tmp_path / "text", tmp_path, "collections.json")


def test_damaged_packages_are_named(folder, tmp_path):
    with tarfile.open(tmp_path / "whole.tgz", "w:gz") as tar:
        tar.add(folder, "package")
    content = (tmp_path / "whole.tgz").read_bytes()
    (tmp_path / "cut.tgz").write_bytes(content[: len(content) // 2])
    with pytest.raises(PreparationError, match="cut.tgz is damaged, fetch it again"):
        open_package(tmp_path / "cut.tgz", tmp_path / "work", "collections.json")
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "json" / "plain.json").write_text('{"icons": {')
    with pytest.raises(PreparationError, match="plain.json is damaged"):
        _prepare(IconPackage(copy), tmp_path / "out")
