"""Checks of settings, made when they are written down: nothing has been spent on them then."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence

import numpy as np

from tfdp.privacy import _arguments as arguments

positive_int = arguments.positive_int
boolean = arguments.boolean
one_of = arguments.one_of


def positive(name: str, value: object) -> float:
    """Returns `value` if it is a finite number above 0."""
    return arguments.finite_real(name, value, minimum=0.0, exclusive=True)


def not_negative(name: str, value: object) -> float:
    """Returns `value` if it is a finite number of at least 0."""
    return arguments.finite_real(name, value, minimum=0.0, exclusive=False)


def finite(name: str, value: object) -> float:
    """Returns `value` if it is a finite number."""
    return _real(name, value, "be a finite number", -math.inf, math.inf)


def share(name: str, value: object) -> float:
    """Returns `value` if it is a part of something that leaves some of it."""
    return _real(name, value, "lie strictly between 0 and 1", 0.0, 1.0)


def below_one(name: str, value: object) -> float:
    """Returns `value` if it lies in [0, 1)."""
    return 0.0 if value == 0 else _real(name, value, "lie in [0, 1)", 0.0, 1.0)


def shares(name: str, values: object, count: int) -> None:
    """Refuses all but `count` positive numbers of sum 1."""
    if not isinstance(values, Sequence) or isinstance(values, str) or len(values) != count:
        raise TypeError(f"{name} must be {count} numbers that add up to 1, got {values!r}.")
    for value in values:
        share(f"each of {name}", value)
    if abs(math.fsum(values) - 1) > 1e-9:
        raise ValueError(f"{name} must add up to 1, got {values!r} of sum {math.fsum(values):g}.")


def kind(name: str, value: object, expected: type) -> None:
    """Refuses what is not of a type."""
    if not isinstance(value, expected):
        raise TypeError(f"{name} must be a {expected.__name__}, got {value!r}.")


def class_count(value: object) -> int:
    """Returns a number of classes: whole, and two or more."""
    expected = f"num_classes must be a whole number of at least 2, got {value!r}"
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{expected}.")
    if value < 2:
        raise ValueError(f"{expected}: with a single class there is nothing to tell apart.")
    return int(value)


def seed(value: object) -> None:
    """Refuses what is neither None nor a whole number."""
    if value is None or (isinstance(value, int | np.integer) and not isinstance(value, bool)):
        return
    raise TypeError(f"seed must be a whole number, or None for fresh entropy, got {value!r}.")


def _real(name: str, value: object, expected: str, low: float, high: float) -> float:
    message = f"{name} must {expected}, got {value!r}."
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(message)
    if not low < float(value) < high:
        raise ValueError(message)
    return float(value)
