"""Counts of records that outlast a process."""

import json

import pytest
import tensorflow as tf

from tfdp.data import IndexableSource

_SPEC = tf.TensorSpec([1])


def source():
    """Ten records, of which the odd ones are not as declared."""
    return IndexableSource([[0.0] * (1 + i % 2) for i in range(10)], element_spec=_SPEC)


def read(records, indices):
    records.fetch(tf.constant(indices, tf.int64), tf.constant(0, tf.int64))


def test_another_process_goes_on_counting_distinct_records(tmp_path):
    path = tmp_path / "unreadable.jsonl"
    first = source()
    read(first, [1])  # before the block: in the file too
    with first.counts_kept_in(path):
        read(first, [2, 3, 3])
    assert first.bad_records == {"wrong_shape": 2}
    second = source()
    with second.counts_kept_in(path):
        assert second.bad_records == {"wrong_shape": 2}
        read(second, [3, 5])
    read(second, [7])  # after the block: in this process alone
    assert second.bad_records == {"wrong_shape": 4}
    with source().counts_kept_in(path):
        pass
    assert json.loads(path.read_text()) == {"bad_records": {"wrong_shape": [1, 3, 5]}}


def test_what_was_met_is_in_the_file_at_once(tmp_path):
    records = source()
    with records.counts_kept_in(tmp_path / "file"):
        read(records, [1, 3])
        killed = (tmp_path / "file").read_text()
        read(records, [1, 3])
        assert (tmp_path / "file").read_text() == killed
    lines = [json.loads(line)["bad_records"]["wrong_shape"] for line in killed.splitlines()]
    assert sum(lines, []) == [1, 3]


def test_a_line_that_a_crash_cut_short_is_left_out(tmp_path):
    path = tmp_path / "file"
    path.write_text('{"bad_records": {"wrong_shape": [1]}}\n{"bad_records": {"wrong_sh')
    records = source()
    with records.counts_kept_in(path):
        read(records, [3])
    assert records.bad_records == {"wrong_shape": 2}
    assert "wrong_sh\n" not in path.read_text() and path.read_text().endswith("[3]}}\n")


@pytest.mark.parametrize("text", ["hello\n", "[1]\n", '{"a": 1}\n', '{"steps": {"x": [1]}}\n'])
def test_another_file_is_rejected_and_left_alone(tmp_path, text):
    path = tmp_path / "ledger.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match="ledger.jsonl"), source().counts_kept_in(path):
        pass
    assert path.read_text() == text


def test_bytes_that_are_no_text_are_told_with_their_file(tmp_path):
    path = tmp_path / "counts.jsonl"
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(ValueError, match="counts.jsonl: .* holds no counts of examples"):
        source().counts_kept_in(path).__enter__()
