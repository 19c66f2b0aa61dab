"""Checks of numbers; NumPy's scalars count as numbers, booleans do not."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence


def whole(
    name: str, value: object, least: int | None = None, *, or_else: str = "", why: str = ""
) -> int:
    """Returns `value` as an int; rejects floats, booleans and anything below `least`.

    Args:
      name: Of the argument.
      value: What was passed in.
      least: The smallest number that will do; None takes all.
      or_else: What else the caller takes, for the message.
      why: What the number is for, or why a smaller one will not do; ends the message.
    """
    expected = "a whole number" if least is None else f"a whole number of at least {least}"
    or_else, why = or_else and f", or {or_else}", why and f": {why}"
    message = f"{name} must be {expected}{or_else}, got {value!r}{why}."
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(message)
    if least is not None and value < least:
        raise ValueError(message)
    return int(value)


def positive_int(name: str, value: object) -> int:
    """Returns `value` as an int of at least 1."""
    return whole(name, value, least=1)


def non_negative_int(name: str, value: object) -> int:
    """Returns `value` as an int of at least 0."""
    return whole(name, value, least=0)


def class_count(value: object) -> int:
    """Returns a number of classes: whole, and two or more."""
    why = "with a single class there is nothing to tell apart"
    return whole("num_classes", value, 2, why=why)


def seed(value: object) -> int | None:
    """Returns `value` if it is None or a whole number."""
    return None if value is None else whole("seed", value, or_else="None for fresh entropy")


def positive(name: str, value: object) -> float:
    """Returns `value` if it is a finite number above 0."""
    return _real(name, value, "be a finite number above 0", lambda number: number > 0)


def not_negative(name: str, value: object) -> float:
    """Returns `value` if it is a finite number of at least 0."""
    return _real(name, value, "be a finite number of at least 0", lambda number: number >= 0)


def finite(name: str, value: object) -> float:
    """Returns `value` if it is a finite number."""
    return _real(name, value, "be a finite number", lambda number: True)


def share(name: str, value: object, why: str = "") -> float:
    """Returns `value` if it lies strictly between 0 and 1."""
    expected = f"lie strictly between 0 and 1{why and f' ({why})'}"
    return _real(name, value, expected, lambda number: 0 < number < 1)


def below_one(name: str, value: object) -> float:
    """Returns `value` if it lies in [0, 1)."""
    return _real(name, value, "lie in [0, 1)", lambda number: 0 <= number < 1)


def shares(name: str, values: object, count: int) -> None:
    """Rejects all but `count` positive numbers of sum 1."""
    if not isinstance(values, Sequence) or isinstance(values, str) or len(values) != count:
        raise TypeError(f"{name} must be {count} numbers that add up to 1, got {values!r}.")
    for value in values:
        share(f"each of {name}", value)
    if abs(math.fsum(values) - 1) > 1e-9:
        raise ValueError(f"{name} must add up to 1, got {values!r} of sum {math.fsum(values):g}.")


def _real(name: str, value: object, expected: str, allowed: Callable[[float], bool]) -> float:
    message = f"{name} must {expected}, got {value!r}."
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(message)
    number = float(value)
    if not (math.isfinite(number) and allowed(number)):
        raise ValueError(message)
    return number
