"""Captions as token ids."""

import numpy as np
import pytest
import tensorflow as tf

from tfdp.captioner import CaptionTokenizer, icons_tokenizer

_PIECES = ["[PAD]", "[UNK]", "[START]", "[END]", "red", "apple", "##s", "o", "clock", "'", "-"]


@pytest.fixture(scope="module")
def tokenizer():
    return CaptionTokenizer(_PIECES)


def test_ids_have_start_end_and_padding(tokenizer):
    ids = tokenizer(["Red apples", "red"], 6)
    assert ids.dtype == tf.int32
    np.testing.assert_array_equal(ids, [[2, 4, 5, 6, 3, 0], [2, 4, 3, 0, 0, 0]])


def test_long_captions_are_cut_and_keep_their_end(tokenizer):
    ids, lengths = tokenizer.encode(["red red red red", "red", ""], 4)
    np.testing.assert_array_equal(ids, [[2, 4, 4, 3], [2, 4, 3, 0], [2, 3, 0, 0]])
    assert lengths.numpy().tolist() == [6, 3, 2]


def test_inside_a_pipeline_ids_are_the_same_and_shapes_static(tokenizer):
    data = tf.data.Dataset.from_tensors(tf.constant(["red apples", "clock"]))
    data = data.map(lambda captions: tokenizer(captions, 5))
    assert data.element_spec.shape == (2, 5)
    np.testing.assert_array_equal(next(iter(data)), tokenizer(["red apples", "clock"], 5))


def test_text_cannot_forge_special_ids(tokenizer):
    ids = tokenizer(["red [END] apple"], 12).numpy()[0].tolist()
    assert ids.count(3) == 1 and ids.index(3) == len(ids) - 1 - ids[::-1].index(3)


def test_detokenize_stops_at_the_end(tokenizer):
    ids = [[2, 4, 5, 6, 3, 4], [2, 7, 9, 8, 3, 0], [4, 10, 4, 5, 5, 5]]
    assert tokenizer.detokenize(ids) == ["red apples", "o'clock", "red-red apple apple apple"]


def test_a_bert_vocabulary_brings_its_own_ids(tmp_path):
    pieces = ["[PAD]", *(f"[unused{i}]" for i in range(99)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*pieces, "cat"]) + "\n")
    tokenizer = CaptionTokenizer(path)
    assert (tokenizer.start_id, tokenizer.end_id, tokenizer.pad_id) == (101, 102, 0)
    np.testing.assert_array_equal(tokenizer(["Cat dog"], 6), [[101, 104, 100, 102, 0, 0]])


def test_a_saved_vocabulary_reads_back(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "v.txt")
    assert CaptionTokenizer(tmp_path / "v.txt").vocabulary == _PIECES


def test_the_packaged_vocabulary_spells_anything():
    tokenizer = icons_tokenizer()
    assert tokenizer.vocabulary[:4] == ["[PAD]", "[UNK]", "[START]", "[END]"]
    assert 2000 <= tokenizer.vocabulary_size <= 4096
    ids = tokenizer(["zyzzyva quokka 8-bit o'clock jalapeño"], 40)
    assert tokenizer.unknown_id not in ids.numpy()
    assert tokenizer.detokenize(ids) == ["zyzzyva quokka 8-bit o'clock jalapeno"]


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        (["[UNK]", "[PAD]", "[START]", "[END]"], r"must start with \[PAD\]"),
        (["[PAD]", "[START]", "[END]"], r"must hold the piece \[UNK\]"),
        (["[PAD]", "[UNK]", "[START]"], r"must hold the piece \[END\] or \[SEP\]"),
        ([*_PIECES, "red"], "holds the piece 'red' twice"),
    ],
)
def test_unusable_vocabularies_are_rejected(pieces, message):
    with pytest.raises(ValueError, match=message):
        CaptionTokenizer(pieces)


def test_a_missing_file_and_too_short_rows_are_rejected(tokenizer, tmp_path):
    with pytest.raises(FileNotFoundError, match="vocabulary file not found"):
        CaptionTokenizer(tmp_path / "none.txt")
    with pytest.raises(ValueError, match="max_length must leave room"):
        tokenizer(["red"], 2)
