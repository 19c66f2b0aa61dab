"""Arguments are named with what came and what is expected; kinds and ranges are told apart."""

import math

import numpy as np
import pytest

from tfdp import checks

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (checks.positive_int, (1, np.int64(7), 2**70), (0, -1)),
        (checks.non_negative_int, (0, 1), (-1,)),
        (checks.positive, (0.5, 3, np.float32(2)), (0, -1.0, NAN, INF)),
        (checks.not_negative, (0, 0.5), (-1e-9, NAN, INF)),
        (checks.finite, (-1.0, 0), (NAN, INF, -INF)),
        (checks.share, (0.5, 1e-9), (0, 1, -0.5, NAN)),
        (checks.below_one, (0, 0.999), (1.0, -0.1, NAN)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_numbers_come_back_plain_and_others_are_named(check, good, bad):
    for value in good:
        found = check("n", value)
        assert found == value and type(found) in (int, float)
    for value in bad:
        with pytest.raises(ValueError, match=f"^n must .*, got {value}.$"):
            check("n", value)
    for value in ("1", None, True, [1], 1j, *((1.0,) if "int" in check.__name__ else ())):
        with pytest.raises(TypeError, match="^n must .*, got "):
            check("n", value)


def test_a_whole_number_says_what_else_is_taken_and_why():
    message = r"^n must be a whole number of at least 2, or None, got 1: two make a pair\.$"
    with pytest.raises(ValueError, match=message):
        checks.whole("n", 1, 2, or_else="None", why="two make a pair")
    assert checks.whole("n", -5) == -5
    with pytest.raises(TypeError, match="^n must be a whole number, got 1.5.$"):
        checks.whole("n", 1.5)


def test_a_seed_is_none_or_whole():
    assert checks.seed(None) is None and checks.seed(np.int32(3)) == 3
    with pytest.raises(TypeError, match="seed must be a whole number, or None for fresh entropy"):
        checks.seed(1.0)


def test_classes_are_two_or_more():
    assert checks.class_count(2) == 2
    with pytest.raises(ValueError, match="at least 2, got 1: with a single class"):
        checks.class_count(1)


@pytest.mark.parametrize(
    ("values", "error"), [(0.5, TypeError), ("ab", TypeError), ((0.5, 0.4), ValueError)]
)
def test_shares_add_up_to_one(values, error):
    checks.shares("n", (0.5, 0.5), 2)
    with pytest.raises(error, match="^n must .*add up to 1, got "):
        checks.shares("n", values, 2)


def test_choices_kinds_and_flags():
    assert checks.one_of("n", "a", ("a", "b")) == "a" and checks.boolean("n", False) is False
    assert checks.boolean("n", np.True_) is True
    with pytest.raises(ValueError, match="^n must be one of a, b, got 'c'.$"):
        checks.one_of("n", "c", ("a", "b"))
    with pytest.raises(TypeError, match="^n must be True or False, got 1.$"):
        checks.boolean("n", 1)
    with pytest.raises(TypeError, match="^n must be a dict, got 1.$"):
        checks.kind("n", 1, dict)
