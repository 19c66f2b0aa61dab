"""Records of anything with `__len__` and `__getitem__`."""

import numpy as np
import pytest
import tensorflow as tf

from tfdp.data import IndexableSource

_STEP = tf.constant(0, tf.int64)


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


_PAIR = (tf.TensorSpec([2, 2], tf.float32), tf.TensorSpec([], tf.int64))


class _Items:
    """Records as they come, and what they are declared to be: three numbers and a label."""

    element_spec = (tf.TensorSpec([3], tf.float32), tf.TensorSpec([], tf.int32))

    def __init__(self, items):
        self._items = items

    def __len__(self):
        return len(self._items)

    def __getitem__(self, index):
        return self._items[index]


def test_e6_records_are_read_one_by_one_and_batched():
    source = IndexableSource(_Digits(), _as_pair, _PAIR)
    x, y, weight, valid = source.fetch(tf.constant([7, 7, 2], tf.int64), _STEP)
    np.testing.assert_allclose(x[:, 0, 0], [7, 7, 2])
    assert x.dtype == tf.float32 and y.numpy().tolist() == [1, 1, 2]
    assert weight is None and valid.numpy().all() and len(source) == 10


def test_a_record_may_hold_structures_text_and_a_weight():
    records = [({"a": np.ones(2), "b": "word"}, 1, 0.5)] * 4
    sequence = np.empty(4, object)
    sequence[:] = records
    spec = (
        {"a": tf.TensorSpec([2], tf.float32), "b": tf.TensorSpec([], tf.string)},
        tf.TensorSpec([], tf.int64),
        tf.TensorSpec([], tf.float32),
    )
    source = IndexableSource(sequence, element_spec=spec)
    x, y, weight, _ = source.fetch(tf.constant([0, 3], tf.int64), _STEP)
    assert x["b"].numpy().tolist() == [b"word", b"word"] and x["a"].shape == (2, 2)
    assert y.shape == (2,) and weight.numpy().tolist() == [0.5, 0.5]


def test_bad_records_are_zero_invalid_and_counted_once():
    source = IndexableSource(_Digits(broken={0, 4}, ragged={5}), _as_pair, _PAIR)
    for _ in range(2):
        x, _, _, valid = source.fetch(tf.constant([3, 4, 5, 0], tf.int64), _STEP)
    assert valid.numpy().tolist() == [True, False, False, False]
    assert not x.numpy()[1:].any()
    assert source.bad_records == {"unreadable_record": 2, "wrong_shape": 1}


def test_batched_access_is_used_where_there_is_one():
    class Batched(_Digits):
        def __getitems__(self, indices):
            return [super(Batched, self).__getitem__(i) for i in indices]

    source = IndexableSource(Batched(broken={4}), _as_pair, _PAIR)
    _, y, _, valid = source.fetch(tf.constant([3, 4], tf.int64), _STEP)
    assert valid.numpy().tolist() == [True, False] and y.numpy().tolist() == [0, 0]


def test_shapes_are_static_inside_a_pipeline():
    source = IndexableSource(_Digits(), _as_pair, _PAIR)
    data = tf.data.Dataset.from_tensors(tf.range(4, dtype=tf.int64))
    spec = data.map(lambda i: source.fetch(i, _STEP)).element_spec
    assert spec[0].shape == (4, 2, 2) and spec[1].shape == (4,) and spec[3].shape == (4,)


@pytest.mark.parametrize(
    "odd",
    [
        (np.array([1, 0, 2]), 1),
        (np.array([1.0, 0, 2], np.float16), True),
        (np.array([True, False, True]), np.float64(1)),
        (np.array([1.0, 0, 2, 3]), 1),
    ],
    ids=["integers", "half", "bool", "longer"],
)
def test_one_record_changes_nothing_of_how_the_others_are_read(odd):
    others = [(np.array([i, 0.5, -0.25], np.float32), i % 3) for i in range(4)]
    read = {}
    for name, items in {"first": [odd, *others], "last": [*others, odd]}.items():
        source = IndexableSource(_Items(items))
        rows = [i for i, item in enumerate(items) if item is not odd]
        read[name] = source.fetch(tf.constant(rows, tf.int64), _STEP)
        assert read[name][3].numpy().all()
    for first, last, dtype in zip(read["first"], read["last"], ("float32", "int32"), strict=False):
        if first is not None:
            np.testing.assert_array_equal(first, last)
            assert dtype == first.dtype.name
    np.testing.assert_array_equal(read["first"][0][:, 1], [0.5] * 4)


@pytest.mark.parametrize(
    "label",
    [
        "abc",
        2**70,
        2**40,
        0.5,
        float("nan"),
        1 + 2j,
        np.datetime64("2020-01-01"),
        {"a": 1},
        np.array({"a": 1}, object),
        None,
        (1, 2, "x"),
    ],
    ids=str,
)
def test_one_record_never_stops_a_run(label):
    x = np.ones(3, np.float32)
    source = IndexableSource(_Items([(x, 1), (x, label), (x, 2)]))
    x, y, _, valid = source.fetch(tf.constant([0, 1, 2], tf.int64), _STEP)
    assert valid.numpy().tolist() == [True, False, True]
    assert y.numpy().tolist() == [1, 0, 2] and not x[1].numpy().any()
    assert sum(source.bad_records.values()) == 1


def test_values_of_another_type_are_counted_apart():
    x = np.ones(3, np.float32)
    source = IndexableSource(_Items([(x, 1), (x, "abc"), (["a", "b", "c"], 1), (x, 2**70)]))
    source.fetch(tf.range(4, dtype=tf.int64), _STEP)
    assert source.bad_records == {"wrong_type": 3}


def test_batched_access_that_leaves_items_out_does_not_move_the_others():
    class Short(_Digits):
        def __getitems__(self, indices):
            return [super(Short, self).__getitem__(i) for i in indices if i != 4]

    source = IndexableSource(Short(), _as_pair, _PAIR)
    _, y, _, valid = source.fetch(tf.constant([4, 2, 7], tf.int64), _STEP)
    assert valid.numpy().all() and y.numpy().tolist() == [1, 2, 1]


def test_what_nobody_declared_is_rejected_with_a_spec_to_paste():
    with pytest.raises(ValueError, match="you declare them") as error:
        IndexableSource(_Digits(broken={0}), _as_pair)
    code = str(error.value).split("element_spec = ")[1].split("\n")[0]
    assert code == "(tf.TensorSpec([2, 2], tf.float32), tf.TensorSpec([], tf.int64))"
    source = IndexableSource(_Digits(), _as_pair, eval(code, {"tf": tf}))
    assert source.fetch(tf.constant([7], tf.int64), _STEP)[1].numpy() == [1]
    with pytest.raises(ValueError, match="'image': tf.TensorSpec"):
        IndexableSource(_Digits())


def test_the_features_of_a_tfds_data_source_declare_its_records():
    class DataSource(_Digits):  # as tfds.data_source gives one
        class dataset_info:
            class features:
                @staticmethod
                def get_tensor_spec():
                    return {"image": _PAIR[0], "label": _PAIR[1]}

    source = IndexableSource(DataSource(broken={0}), _as_pair)
    x, y, _, valid = source.fetch(tf.constant([0, 7], tf.int64), _STEP)
    assert valid.numpy().tolist() == [False, True] and (x.shape, y.dtype) == ((2, 2, 2), tf.int64)


def test_unusable_sequences_are_rejected():
    with pytest.raises(TypeError, match="must have __len__ and __getitem__"):
        IndexableSource(iter([1, 2]))
    with pytest.raises(ValueError, match="sequence is empty"):
        IndexableSource([])
    with pytest.raises(ValueError, match="None of the first 10 examples .* OSError: disk"):
        IndexableSource(_Digits(broken=range(10)), _as_pair, _PAIR)
    with pytest.raises(ValueError, match="every length must be stated"):
        IndexableSource(_Digits(), _as_pair, (tf.TensorSpec([None, 2]), tf.TensorSpec([])))
    with pytest.raises(TypeError, match="expected tf.TensorSpec"):
        IndexableSource(_Digits(), _as_pair, ((2, 2), ()))
