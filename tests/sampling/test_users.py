"""Whose examples are whose, and which of them a step uses."""

import numpy as np
import pytest

from tfdp.sampling import UserExamples

IDS = np.array([7, 3, 7, 9, 7, 3, 7])


def test_users_are_laid_side_by_side_and_padded():
    users = UserExamples(IDS, 3)
    assert (users.num_users, users.num_examples, users.examples_skipped) == (3, 7, 1)
    examples, mask = users.of(np.array([1, 0, 2]), np.array([True, True, True]))
    np.testing.assert_array_equal(examples, [0, 2, 4, 1, 5, 0, 3, 0, 0])  # 6 is one too many
    np.testing.assert_array_equal(mask, [1, 1, 1, 1, 1, 0, 1, 0, 0])


def test_padding_has_no_examples():
    examples, mask = UserExamples(IDS, 2).of(np.array([1, 0]), np.array([True, False]))
    np.testing.assert_array_equal(examples, [0, 2, 0, 0])
    np.testing.assert_array_equal(mask, [1, 1, 0, 0])


def test_which_examples_of_a_user_are_used_does_not_depend_on_others():
    """E11."""
    more = np.concatenate([[5, 5], IDS, [4]])
    examples, mask = UserExamples(more, 3).of(np.array([3]), np.array([True]))
    np.testing.assert_array_equal(examples[mask] - 2, [0, 2, 4])


def test_ids_may_be_words():
    users = UserExamples(["ann", "bob", "ann"], 5)
    assert (users.num_users, users.examples_skipped) == (2, 0)


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        ([[1, 2]], ValueError, "shape"),
        ([], ValueError, "shape"),
        ([1.0, float("nan")], TypeError, "integers or strings"),
        ([None, "a"], TypeError, "integers or strings"),
    ],
)
def test_invalid_user_ids_are_rejected(ids, error, message):
    with pytest.raises(error, match=message):
        UserExamples(ids, 2)
    with pytest.raises(ValueError, match="examples_per_user"):
        UserExamples([1], 0)
