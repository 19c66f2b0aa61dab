"""Checks of the arguments that people pass in, with one-line messages that name them.

Called as ``checks.positive_int("steps", steps)``, before anything has been spent on the argument.
TypeError is for what is of the wrong kind, ValueError for what is out of range.
"""

from tfdp.checks.choices import boolean, kind, one_of
from tfdp.checks.numbers import (
    below_one,
    class_count,
    finite,
    non_negative_int,
    not_negative,
    positive,
    positive_int,
    seed,
    share,
    shares,
    whole,
)

__all__ = [
    "below_one",
    "boolean",
    "class_count",
    "finite",
    "kind",
    "non_negative_int",
    "not_negative",
    "one_of",
    "positive",
    "positive_int",
    "seed",
    "share",
    "shares",
    "whole",
]
