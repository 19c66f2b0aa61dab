"""What --class_names means: how many there are, or a JSON file that lists them."""

from __future__ import annotations

import json
from typing import Any


def class_names(value: str) -> list[str]:
    """Names from a number of classes or a JSON file.

    Raises:
        OSError, ValueError: there is no such file, or it holds no list of two names or more.
    """
    names = list(range(int(value))) if value.isdecimal() else _listed_names(value)
    if len(names) < 2:
        raise ValueError(
            f"--class_names={value}: a classifier needs two classes or more, got {len(names)}."
        )
    return [str(name) for name in names]


def _listed_names(path: str) -> list[Any]:
    try:
        with open(path, encoding="utf-8") as file:
            names = json.load(file)
    except ValueError as error:
        raise ValueError(f"--class_names={path}: holds no JSON ({error}).") from error
    if not isinstance(names, list):
        raise ValueError(f"--class_names={path}: expected a JSON list of names.")
    return names
