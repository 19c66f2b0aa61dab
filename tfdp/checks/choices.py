"""Checks of arguments that are no numbers."""

from __future__ import annotations

import numpy as np


def one_of(name: str, value: object, choices: tuple[str, ...]) -> str:
    """Returns `value` if it is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}.")
    return str(value)


def boolean(name: str, value: object) -> bool:
    """Returns `value` as a bool if it is True or False, NumPy's included."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {value!r}.")
    return bool(value)


def kind(name: str, value: object, expected: type) -> None:
    """Rejects what is not of a type."""
    if not isinstance(value, expected):
        raise TypeError(f"{name} must be a {expected.__name__}, got {value!r}.")
