"""Examples to train on and examples to judge by: each is in one of the two parts only."""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

import numpy as np

from tfdp import checks

#: Public; it separates this use of the hash from any other.
_KEY = b"tfdp: held-out records"  # of the first results, which keep their parts
#: How far chance takes the size of a part, in standard deviations: once in 500 million splits.
_DEVIATIONS = 6.0


class Examples(Protocol):
    """Labeled examples: `FeatureTable` or `Pictures`."""

    num_classes: int
    stray: float

    def __len__(self) -> int:
        """Returns N."""

    def subset(self, chosen: np.ndarray, stray: float) -> Any:
        """Returns those where `chosen`, bool `[N]`, is true."""

    def contents(self) -> Iterator[Any]:
        """Yields bytes that depend on one example alone, for every example in order."""


_Examples = TypeVar("_Examples", bound=Examples)
#: The parts of examples, by share and adjacency; kept as long as the examples.
_PARTS: weakref.WeakKeyDictionary[Any, dict[Any, tuple[Any, Any]]] = weakref.WeakKeyDictionary()


def held_out(data: Examples, share: float, adjacency: str = "add_or_remove_one") -> np.ndarray:
    """Returns which examples are held out, bool `[N]`; the same in every run.

    An example's part must not change because another one comes or goes: a sum over a part then
    changes by one example at most, and what is released of the two parts does not add up. So
    where neighbors have one example more, an example is held out or not by a hash of itself. Equal
    examples are in the same part, and the parts are about as large as was asked for. Where
    neighbors have another example in the same place, the place decides: an example that took
    its part along could change both of them.

    Args:
        data: The examples.
        share: The part of them that is held out, strictly between 0 and 1.
        adjacency: "add_or_remove_one" or "replace_one".

    Raises:
        ValueError: The share is out of range.
    """
    return _drawn(data, share, adjacency)[0]


def public_size(num_examples: int, share: float, adjacency: str = "add_or_remove_one") -> int:
    """Returns N of the part that is trained on, from public numbers alone: it divides sums.

    How many examples are really in it is private, and near this number.
    """
    if adjacency == "replace_one":
        return int((~_places(num_examples, share)).sum())
    return max(1, round((1 - share) * num_examples))


def split(
    data: _Examples, share: float, adjacency: str = "add_or_remove_one"
) -> tuple[_Examples, _Examples]:
    """Returns examples to train on and held-out ones, none in both, always the same split.

    Raises:
        ValueError: The share is out of range, or leaves one of the parts without examples.
    """
    made = _PARTS.setdefault(data, {})
    if (share, adjacency) not in made:
        chosen, squares = _drawn(data, share, adjacency)
        if chosen.all() or not chosen.any():
            raise ValueError(
                f"held_out={share} of {len(data)} examples leaves no examples to "
                f"{'train on' if chosen.all() else 'evaluate on'}: change held_out, or use more "
                "examples."
            )
        stray = _DEVIATIONS * math.sqrt(squares * share * (1 - share))
        made[share, adjacency] = data.subset(~chosen, stray), data.subset(chosen, stray)
    return made[share, adjacency]


def _drawn(data: Examples, share: float, adjacency: str) -> tuple[np.ndarray, int]:
    """Returns which examples are held out, and the sum of squares of how often each occurs.

    Equal examples, such as all that cannot be read, go to one part together: the variance of a
    part's size is that sum times share (1 - share).
    """
    checks.share("held_out", share)
    if adjacency == "replace_one":
        return _places(len(data), share), len(data)
    digests = np.frombuffer(
        b"".join(hashlib.blake2b(c, digest_size=8, key=_KEY).digest() for c in data.contents()),
        "<u8",
    )
    copies = np.unique(digests, return_counts=True)[1]
    return digests < share * 2.0**64, int(np.sum(copies**2))


def _places(count: int, share: float) -> np.ndarray:
    return np.random.default_rng(0).random(count) < share
