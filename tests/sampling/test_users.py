"""Whose records are whose, and which of them a step uses."""

import numpy as np
import pytest

from tfdp.sampling import UserExamples

IDS = np.array([7, 3, 7, 9, 7, 3, 7])


def test_units_are_laid_side_by_side_and_padded():
    units = UserExamples(IDS, 3)
    assert (units.num_users, units.num_records, units.records_left_out) == (3, 7, 1)
    rows, mask = units.rows(np.array([1, 0, 2]), np.array([True, True, True]))
    np.testing.assert_array_equal(rows, [0, 2, 4, 1, 5, 0, 3, 0, 0])  # record 6 is one too many
    np.testing.assert_array_equal(mask, [1, 1, 1, 1, 1, 0, 1, 0, 0])


def test_padding_has_no_records():
    rows, mask = UserExamples(IDS, 2).rows(np.array([1, 0]), np.array([True, False]))
    np.testing.assert_array_equal(rows, [0, 2, 0, 0])
    np.testing.assert_array_equal(mask, [1, 1, 0, 0])


def test_e11_which_records_of_a_unit_are_used_does_not_depend_on_others():
    more = np.concatenate([[5, 5], IDS, [4]])
    rows, mask = UserExamples(more, 3).rows(np.array([3]), np.array([True]))
    np.testing.assert_array_equal(rows[mask] - 2, [0, 2, 4])


def test_ids_may_be_words():
    units = UserExamples(["ann", "bob", "ann"], 5)
    assert (units.num_users, units.records_left_out) == (2, 0)


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        ([[1, 2]], ValueError, "shape"),
        ([], ValueError, "shape"),
        ([1.0, float("nan")], TypeError, "integers or strings"),
        ([None, "a"], TypeError, "integers or strings"),
    ],
)
def test_what_are_no_ids_is_refused(ids, error, message):
    with pytest.raises(error, match=message):
        UserExamples(ids, 2)
    with pytest.raises(ValueError, match="examples_per_user"):
        UserExamples([1], 0)
