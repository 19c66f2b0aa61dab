"""The vocabulary is learned from WordNet's text alone."""

from tfdp.captioner import CaptionTokenizer, public_captions
from tfdp.captioner.icons.preparation.wordnet_vocabulary import (
    noun_phrases,
    prepare_vocabulary,
    wordnet_text,
)

_SENSES = (
    "  1 This software and database is being provided to you\n"
    '00015388 05 n 02 animal 0 living_beast 0 001 @ 00004475 n 0000 | an organism; "a dog"  \n'
    "00016000 03 n 01 entity 0 000 | that which is  \n"
    "00017000 06 n 01 Eiffel_Tower 0 000 | a tower in Paris  \n"
)


def _package(folder):
    (folder / "dict").mkdir(parents=True)
    (folder / "dict" / "data.noun").write_text(_SENSES * 12)
    (folder / "LICENSE").write_text("WordNet license")
    return folder


def test_names_count_three_times_and_only_drawable_senses(tmp_path):
    lines = list(wordnet_text(_package(tmp_path / "wordnet")))
    assert lines[:4] == ["animal living beast"] * 3 + ['an organism; "a dog"']
    assert not any("that which is" in line for line in lines)


def test_public_captions_are_common_nouns(tmp_path):
    assert set(noun_phrases(_package(tmp_path / "wordnet"))) == {"animal", "entity"}
    captions = public_captions()
    assert len(captions) > 5000 and all(caption == caption.lower() for caption in captions)


def test_the_vocabulary_spells_its_text(tmp_path):
    pieces = prepare_vocabulary(_package(tmp_path / "wordnet"), tmp_path / "out", 400)
    tokenizer = CaptionTokenizer(tmp_path / "out" / "wordnet.txt")
    assert tokenizer.vocabulary == pieces
    ids = tokenizer(["a living beast"], 32)
    assert tokenizer.unknown_id not in ids.numpy()
    assert (tmp_path / "out" / "LICENSE").read_text() == "WordNet license"
