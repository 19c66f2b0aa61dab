"""Rows to train on and rows to judge by, so that one record touches one of the two parts only."""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

import numpy as np

from tfdp import checks

#: Public; it sets this use of the hash apart from any other.
_KEY = b"tfdp: held-out records"
#: How far chance takes the size of a part, in standard deviations: once in 500 million splits.
_DEVIATIONS = 6.0


class Records(Protocol):
    """Labelled records: `Rows` of features, or `Pictures`."""

    num_classes: int
    stray: float

    def __len__(self) -> int:
        """N."""

    def subset(self, chosen: np.ndarray) -> Any:
        """Those where `chosen`, bool `[N]`, is true."""

    def contents(self) -> Iterator[Any]:
        """Of every record, in order, bytes that follow from it alone."""


_Records = TypeVar("_Records", bound=Records)
#: Parts of records, by share and adjacency; made once for each, and gone with them.
_PARTS: weakref.WeakKeyDictionary[Any, dict[Any, tuple[Any, Any]]] = weakref.WeakKeyDictionary()


def held_out(rows: Records, share: float, adjacency: str = "add_or_remove_one") -> np.ndarray:
    """Which records are held out, bool `[N]`; the same in every run.

    A record's part must not change because another one comes or goes: a sum over a part is then
    bounded by one record, and what is published of the two parts does not add up. So where
    neighbours have a row more, a record is held out or not by a hash of itself. Equal records are
    in the same part, and the parts have about the share that was asked for. Where neighbours have
    another row in the same place, it is the place that decides: a record that took its part along
    could change both of them.

    Args:
        rows: the records.
        share: of them that is held out, strictly between 0 and 1.
        adjacency: "add_or_remove_one" or "replace_one".

    Raises:
        ValueError: the share is out of range.
    """
    return _drawn(rows, share, adjacency)[0]


def public_size(num_examples: int, share: float, adjacency: str = "add_or_remove_one") -> int:
    """N of the part that is trained on, from public numbers alone: it divides sums.

    How many records there really are in it is private, like N itself, and near it.
    """
    if adjacency == "replace_one":
        return int((~_places(num_examples, share)).sum())
    return max(1, round((1 - share) * num_examples))


def split_rows(
    rows: _Records, share: float, adjacency: str = "add_or_remove_one"
) -> tuple[_Records, _Records]:
    """Rows to train on and held-out rows, with no row in both; the same for the same rows.

    Raises:
        ValueError: the share is out of range, or leaves one of the parts without rows.
    """
    made = _PARTS.setdefault(rows, {})
    if (share, adjacency) not in made:
        chosen, squares = _drawn(rows, share, adjacency)
        if chosen.all() or not chosen.any():
            raise ValueError(
                f"a held-out share of {share} of {len(rows)} rows leaves no rows to "
                f"{'train on' if chosen.all() else 'judge by'}; take another share, or more rows."
            )
        train, judges = rows.subset(~chosen), rows.subset(chosen)
        train.stray = _DEVIATIONS * math.sqrt(squares * share * (1 - share))
        made[share, adjacency] = train, judges
    return made[share, adjacency]


def _drawn(rows: Records, share: float, adjacency: str) -> tuple[np.ndarray, int]:
    """Which records are held out, and the sum of squares of how often each record occurs.

    Equal records, such as all that cannot be read, go to one of the parts together: the variance
    of a part's size is that sum times share (1 - share).
    """
    checks.share("held_out", share)
    if adjacency == "replace_one":
        return _places(len(rows), share), len(rows)
    digests = np.frombuffer(
        b"".join(hashlib.blake2b(c, digest_size=8, key=_KEY).digest() for c in rows.contents()),
        "<u8",
    )
    copies = np.unique(digests, return_counts=True)[1]
    return digests < share * 2.0**64, int(np.sum(copies**2))


def _places(count: int, share: float) -> np.ndarray:
    return np.random.default_rng(0).random(count) < share
