"""Records held in arrays."""

import numpy as np
import pytest
import tensorflow as tf

from tfdp.data import ArraySource

_STEP = tf.constant(0, tf.int64)


def _fetch(source, indices):
    return source.fetch(tf.constant(indices, tf.int64), _STEP)


def test_e6_arrays_come_back_row_by_row():
    x, y, w = np.arange(12.0).reshape(6, 2), np.arange(6), np.linspace(0, 1, 6)
    source = ArraySource(x, y, w)
    got_x, got_y, got_w, valid = _fetch(source, [5, 0, 5])
    np.testing.assert_allclose(got_x, x[[5, 0, 5]])
    np.testing.assert_array_equal(got_y, [5, 0, 5])
    np.testing.assert_allclose(got_w, w[[5, 0, 5]], rtol=1e-6)
    assert len(source) == 6 and valid.numpy().all() and source.bad_records == {}
    assert (got_x.dtype, got_w.dtype) == (tf.float32, tf.float32)


def test_e6_nested_dicts_and_tuples_keep_their_structure():
    x = {"image": np.zeros((4, 3, 3), np.uint8), "pair": (np.arange(4), np.ones((4, 2)))}
    got, y, weight, _ = _fetch(ArraySource(x), [1, 2])
    assert got["image"].dtype == tf.uint8 and got["image"].shape == (2, 3, 3)
    np.testing.assert_array_equal(got["pair"][0], [1, 2])
    assert y is None and weight is None


def test_shapes_are_static_inside_a_pipeline():
    source = ArraySource(np.zeros((8, 5)), ["a"] * 8)
    data = tf.data.Dataset.from_tensors(tf.range(4, dtype=tf.int64))
    spec = data.map(lambda i: source.fetch(i, _STEP)).element_spec
    assert spec[0].shape == (4, 5)
    assert spec[1] == tf.TensorSpec([4], tf.string)
    assert spec[3] == tf.TensorSpec([4], tf.bool)


def test_memory_maps_are_not_copied(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(30.0).reshape(10, 3))
    source = ArraySource(np.load(tmp_path / "x.npy", mmap_mode="r"))
    assert isinstance(source._leaves[0], np.memmap)
    np.testing.assert_allclose(_fetch(source, [9])[0], [[27, 28, 29]])


def test_text_and_columns_in_lists():
    source = ArraySource(["one", "zwei", "trois"], [0, 1, 1])
    x, y, _, _ = _fetch(source, [1])
    assert x.numpy().tolist() == [b"zwei"] and y.numpy().tolist() == [1]


def test_e6_lengths_must_agree():
    with pytest.raises(ValueError, match="x has 5, y has 4, sample_weight has 5"):
        ArraySource(np.zeros(5), np.zeros(4), np.zeros(5))
    with pytest.raises(ValueError, match=r"x\['a'\] has 5, x\['b'\] has 6"):
        ArraySource({"a": np.zeros(5), "b": np.zeros(6)})
    with pytest.raises(ValueError, match=r"x\[4\] has 3, there are 96 more; np.asarray\(list\)"):
        ArraySource([[1.0, 2.0, 3.0]] * 100, np.zeros(100))


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (None, ValueError, "nothing to train on"),
        ({}, ValueError, "nothing to train on"),
        (np.zeros((0, 3)), ValueError, "x has no rows"),
        (np.float32(3), TypeError, "one row for each example"),
        (np.array([{}, {}]), TypeError, "must be an array of numbers or strings"),
        (np.array(["2020-01-01"], "M8[D]"), TypeError, r"x must be .* got dtype datetime64\[D\]"),
    ],
)
def test_what_is_no_array_is_rejected(x, error, message):
    with pytest.raises(error, match=message):
        ArraySource(x)


def test_sample_weights_are_one_array_by_example_or_by_token():
    shapes = {(3,): (2,), (3, 1): (2,), (3, 4): (2, 4), (3, 4, 1): (2, 4)}
    for given, fetched in shapes.items():
        source = ArraySource(np.zeros(3), np.zeros(3), np.ones(given))
        assert _fetch(source, [0, 2])[2].shape == fetched
    with pytest.raises(ValueError, match="one array with a number for each example"):
        ArraySource(np.zeros(3), np.zeros(3), {"a": np.zeros(3)})


def test_from_dataset_reads_single_records():
    data = tf.data.Dataset.from_tensor_slices((np.arange(6.0).reshape(3, 2), [7, 8, 9]))
    x, y, _, _ = _fetch(ArraySource.from_dataset(data), [2])
    np.testing.assert_allclose(x, [[4, 5]])
    assert y.numpy().tolist() == [9]
    with pytest.raises(ValueError, match="infinite"):
        ArraySource.from_dataset(data.repeat())
    with pytest.raises(ValueError, match="empty"):
        ArraySource.from_dataset(data.take(0))
