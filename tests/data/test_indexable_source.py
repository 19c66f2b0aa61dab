"""Records of anything with `__len__` and `__getitem__`."""

import numpy as np
import pytest
import tensorflow as tf

from tfdp.data import IndexableSource

_UPDATE = tf.constant(0, tf.int64)


class _Digits:
    """As a tfds.data_source: dicts of arrays; some records are broken."""

    def __init__(self, broken=(), ragged=()):
        self._broken, self._ragged = broken, ragged

    def __len__(self):
        return 10

    def __getitem__(self, index):
        if index in self._broken:
            raise OSError("disk")
        side = 3 if index in self._ragged else 2
        return {"image": np.full((side, side), index, np.float64), "label": index % 3}


def _as_pair(record):
    return record["image"], record["label"]


def test_e6_records_are_read_one_by_one_and_batched():
    source = IndexableSource(_Digits(), _as_pair)
    x, y, weight, valid = source.fetch(tf.constant([7, 7, 2], tf.int64), _UPDATE)
    np.testing.assert_allclose(x[:, 0, 0], [7, 7, 2])
    assert x.dtype == tf.float32 and y.numpy().tolist() == [1, 1, 2]
    assert weight is None and valid.numpy().all() and len(source) == 10


def test_a_record_may_hold_structures_text_and_a_weight():
    records = [({"a": np.ones(2), "b": "word"}, 1, 0.5)] * 4
    sequence = np.empty(4, object)
    sequence[:] = records
    source = IndexableSource(sequence)
    x, y, weight, _ = source.fetch(tf.constant([0, 3], tf.int64), _UPDATE)
    assert x["b"].numpy().tolist() == [b"word", b"word"] and x["a"].shape == (2, 2)
    assert y.shape == (2,) and weight.numpy().tolist() == [0.5, 0.5]


def test_bad_records_are_zero_invalid_and_counted_once():
    source = IndexableSource(_Digits(broken={0, 4}, ragged={5}), _as_pair)
    for _ in range(2):
        x, _, _, valid = source.fetch(tf.constant([3, 4, 5, 0], tf.int64), _UPDATE)
    assert valid.numpy().tolist() == [True, False, False, False]
    assert not x.numpy()[1:].any()
    assert source.bad_records == {"unreadable_record": 2, "wrong_shape": 1}


def test_batched_access_is_used_where_there_is_one():
    class Batched(_Digits):
        def __getitems__(self, indices):
            return [super(Batched, self).__getitem__(i) for i in indices]

    source = IndexableSource(Batched(broken={4}), _as_pair)
    _, y, _, valid = source.fetch(tf.constant([3, 4], tf.int64), _UPDATE)
    assert valid.numpy().tolist() == [True, False] and y.numpy().tolist() == [0, 0]


def test_shapes_are_static_inside_a_pipeline():
    source = IndexableSource(_Digits(), _as_pair)
    data = tf.data.Dataset.from_tensors(tf.range(4, dtype=tf.int64))
    spec = data.map(lambda i: source.fetch(i, _UPDATE)).element_spec
    assert spec[0].shape == (4, 2, 2) and spec[1].shape == (4,) and spec[3].shape == (4,)


def test_unusable_sequences_are_refused():
    with pytest.raises(TypeError, match="must have __len__ and __getitem__"):
        IndexableSource(iter([1, 2]))
    with pytest.raises(ValueError, match="sequence is empty"):
        IndexableSource([])
    with pytest.raises(ValueError, match="None of the first 10 records .* OSError: disk"):
        IndexableSource(_Digits(broken=range(10)), _as_pair)
