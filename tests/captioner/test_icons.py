"""The packaged data are what they say."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

import tfdp.captioner.icons
from tfdp.captioner import icons_manifest, load_icons
from tfdp.captioner.pairs import PairFiles

_FOLDER = Path(tfdp.captioner.icons.__file__).parent
_PERMISSIVE = {"Apache-2.0", "MIT", "CC-BY-4.0", "CC0-1.0"}


@pytest.fixture(scope="module")
def pairs():
    return {
        split: (files := PairFiles(_FOLDER, split)).read(range(len(files)))
        for split in ("train", "test")
    }


def test_files_are_whole_small_and_counted():
    manifest = icons_manifest()
    total = sum(path.stat().st_size for path in _FOLDER.rglob("*") if path.is_file())
    assert total < 10_000_000
    assert sum(split["num_examples"] for split in manifest["splits"].values()) >= 10_000
    for split in manifest["splits"].values():
        for file in split["files"]:
            content = (_FOLDER / file["file"]).read_bytes()
            assert hashlib.sha256(content).hexdigest() == file["sha256"]


def test_counts_agree_with_the_records(pairs):
    for split, facts in icons_manifest()["splits"].items():
        labels = np.array([pair.label for pair in pairs[split]])
        assert len(labels) == facts["num_examples"]
        assert np.bincount(labels[labels >= 0]).tolist() == facts["examples_per_label"]
        assert min(facts["examples_per_label"]) >= 40
        assert len({pair.concept for pair in pairs[split]}) == facts["concepts"]


def test_no_concept_is_on_both_sides(pairs):
    train, test = ({pair.concept for pair in pairs[s]} for s in ("train", "test"))
    assert not train & test
    captions_of_train = {pair.caption for pair in pairs["train"]}
    assert not captions_of_train & {pair.caption for pair in pairs["test"]}
    assert 0.08 < len(pairs["test"]) / (len(pairs["train"]) + len(pairs["test"])) < 0.15


def test_captions_are_clean_phrases(pairs):
    for pair in pairs["train"] + pairs["test"]:
        assert pair.caption == pair.caption.strip().lower()
        assert 1 <= len(pair.caption.split()) <= 6
        assert "skin tone" not in pair.caption


def test_every_picture_decodes_shows_something_and_is_there_once():
    seen = set()
    for split in ("train", "test"):
        source = load_icons(split)
        pixels = source.pictures()
        assert pixels.shape == (len(source), 32, 32, 3)
        flat = pixels.reshape(len(pixels), -1)
        assert (flat.max(1).astype(int) - flat.min(1) >= 24).all()
        digests = [row.tobytes() for row in flat]
        assert len(set(digests)) == len(digests) and not seen & set(digests)
        seen |= set(digests)
        assert source.bad_records == {}


def test_the_vocabulary_covers_the_captions():
    """No caption word is unknown, though no caption was read to make the vocabulary."""
    source = load_icons("train")
    ids, lengths = source.tokenizer.encode(source.captions(), 32)
    assert not (ids.numpy() == source.tokenizer.unknown_id).any()
    assert lengths.numpy().mean() < 7
    assert (lengths.numpy() > source.max_length).mean() < 0.001


def test_sources_are_permissive_and_named():
    manifest, text = icons_manifest(), (_FOLDER / "ATTRIBUTION.md").read_text("utf-8")
    assert {source["license"] for source in manifest["sources"]} <= _PERMISSIVE
    for source in manifest["sources"]:
        assert source["name"] in text and source["author"] in text
    counted = sum(source["num_examples"] for source in manifest["sources"])
    assert counted == sum(split["num_examples"] for split in manifest["splits"].values())


def test_labels_have_names():
    source = load_icons("test")
    assert len(source.label_names) == 9
    labels, captions = source.labels(), source.captions()
    flags = [c for c, label in zip(captions, labels, strict=True) if label == 8]
    assert sum("flag" in caption for caption in flags) > 0.9 * len(flags)


def test_pictures_are_normalized_as_asked_for():
    half, imagenet = (load_icons("test", normalization=name) for name in ("half", "imagenet"))
    pixels = (half.images([3]) + 1) / 2
    expected = (pixels - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    np.testing.assert_allclose(imagenet.images([3]), expected, atol=1e-5)


def test_an_unknown_split_is_rejected():
    with pytest.raises(ValueError, match=r"split must be one of \['test', 'train'\], got 'val'"):
        load_icons("val")
