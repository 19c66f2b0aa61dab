"""Bad input: a clear error, or a treatment that is counted."""

import logging

import numpy as np
import pytest

from tfdp.transfer import FeatureTable, as_table

X = np.ones((4, 3), np.float32)
Y = np.array([0, 1, 1, 0])


def test_examples_that_are_not_finite_are_counted_and_zeroed(caplog):
    x = X.copy()
    x[1, 0], x[2, 2] = np.nan, -np.inf
    with caplog.at_level(logging.WARNING):
        rows = as_table(x, Y, 2)
    assert rows.bad_examples == 2 and "2 of 4 feature rows are not finite" in caplog.text
    np.testing.assert_array_equal(rows.labels, [0, -1, -1, 0])
    (block,) = rows.blocks()
    np.testing.assert_array_equal(block.features[1:3], np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("x", "y", "classes", "error", "message"),
    [
        (X * np.nan, Y, 2, ValueError, "no finite row"),
        (X, Y, 1, ValueError, "num_classes must be a whole number of at least 2"),
        (X, [0, 1, 2, 0], 2, ValueError, r"labels must lie in 0..1 .* found 2"),
        (X, [0, -1, 1, 0], 2, ValueError, "found -1"),
        (X, [0, 1, 1], 2, ValueError, r"labels must have shape \[4\]"),
        (X, [0.0, 1.0, 1.0, 0.0], 2, TypeError, "labels must be integers"),
        (X[:0], Y[:0], 2, ValueError, "no rows"),
        (X[0], Y, 2, ValueError, r"features must have shape \[N, D\]"),
        (X.astype(str), Y, 2, TypeError, "features must be numbers"),
        (X, np.full((4, 2), 0.5), 2, ValueError, "one-hot"),
    ],
)
def test_bad_input_is_named(x, y, classes, error, message):
    with pytest.raises(error, match=message):
        as_table(x, y, classes)


def test_one_hot_and_column_labels_are_understood():
    for labels in (np.eye(2, dtype=int)[Y], np.eye(2)[Y], Y[:, None]):
        np.testing.assert_array_equal(as_table(X, labels, 2).labels, Y)


def test_parts_of_different_widths_are_named():
    with pytest.raises(ValueError, match="part 0 has 3 columns, part 1 has 2"):
        FeatureTable([X, X[:, :2]], [Y, Y], 2)


def test_empty_parts_are_skipped():
    rows = FeatureTable([X[:0], X, X[:0, :2]], [Y[:0], Y, Y[:0]], 2)
    assert len(rows) == 4 and [len(b.labels) for b in rows.blocks()] == [4]


def test_float64_beyond_float32_counts_as_not_finite():
    x = X.astype(np.float64)
    x[3, 0] = 1e300
    assert as_table(x, Y, 2).bad_examples == 1


def test_blocks_cover_parts_in_order_without_crossing_them():
    x = np.arange(30, dtype=np.float32).reshape(10, 3)
    rows = FeatureTable([x[:7], x[7:]], [np.zeros(7, int), np.ones(3, int)], 2)
    blocks = list(rows.blocks(4))
    assert [(b.start, len(b.labels)) for b in blocks] == [(0, 4), (4, 3), (7, 3)]
    np.testing.assert_array_equal(np.concatenate([b.features for b in blocks]), x)
