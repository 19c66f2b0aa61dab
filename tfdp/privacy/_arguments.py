"""Checks of the numbers that people pass in, with one-line messages that name the argument."""

from __future__ import annotations

import math
import numbers

TINY_DELTA = 1e-300


def positive_int(name: str, value: object) -> int:
    """Returns `value` as an int; refuses floats, booleans and anything below 1."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be a whole number of at least 1, got {value!r}.")
    if value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value}.")
    return int(value)


def non_negative_int(name: str, value: object) -> int:
    """Returns `value` as an int; refuses floats, booleans and negative numbers."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be a whole number of at least 0, got {value!r}.")
    if value < 0:
        raise ValueError(f"{name} must be a whole number of at least 0, got {value}.")
    return int(value)


def finite_real(name: str, value: object, *, minimum: float, exclusive: bool) -> float:
    """Returns `value` as a finite float above (or at) `minimum`."""
    relation = "above" if exclusive else "of at least"
    expected = f"{name} must be a finite number {relation} {minimum:g}, got {value!r}."
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(expected)
    number = float(value)
    if not math.isfinite(number) or number < minimum or (exclusive and number == minimum):
        raise ValueError(expected)
    return number


def delta(value: object) -> float:
    """Returns `value` as a float strictly between 0 and 1."""
    expected = f"delta must lie strictly between 0 and 1 (commonly below 1/N), got {value!r}."
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(expected)
    number = float(value)
    if not TINY_DELTA <= number < 1:
        raise ValueError(expected)
    return number


def one_of(name: str, value: object, choices: tuple[str, ...]) -> str:
    """Returns `value` if it is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}.")
    return str(value)


def boolean(name: str, value: object) -> bool:
    """Returns `value` if it is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}.")
    return value
