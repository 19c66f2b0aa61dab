"""The check of a delta that people pass in."""

from __future__ import annotations

from tfdp import checks

TINY_DELTA = 1e-300


def checked_delta(value: object) -> float:
    """Returns `value` as a float strictly between 0 and 1."""
    delta = checks.share("delta", value, why="commonly below 1/N")
    if delta < TINY_DELTA:
        raise ValueError(f"delta must be at least {TINY_DELTA:g}, got {value!r}.")
    return delta
