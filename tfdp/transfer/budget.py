"""The budget of a head: for how many records it is, and what it is shared over."""

from __future__ import annotations

import dataclasses
import math

from tfdp.privacy import PrivacyPlan
from tfdp.transfer.methods import Method, Task
from tfdp.transfer.prepare import Preparation
from tfdp.transfer.spending import Release

_MOST_STRAY = 0.01  # by how much the rows may differ from num_examples before it is an error


def whole_budget(
    num_examples: int,
    epsilon: float | None,
    delta: float,
    noise_multiplier: float | None,
    adjacency: str,
) -> PrivacyPlan:
    """The budget as one release that uses every row once."""
    if epsilon == math.inf and noise_multiplier is None:
        epsilon, noise_multiplier = None, 0.0
    return PrivacyPlan(
        num_examples=num_examples,
        batch_size=num_examples,
        steps=1,
        clip_norm=1.0,
        epsilon=epsilon,
        delta=delta,
        noise_multiplier=noise_multiplier,
        sampling="full_batch",
        adjacency=adjacency,
    )


def check_count(count: int, stated: int, stray: float = 0.0) -> None:
    """Far from the stated number something is amiss; near it is what privacy hides.

    Args:
        count: how many records there are.
        stated: N, public.
        stray: by how many they may differ at least.

    Raises:
        ValueError: they are too many or too few.
    """
    if abs(count - stated) > max(1, _MOST_STRAY * stated, stray):
        raise ValueError(
            f"num_examples={stated} was stated but there are {count} rows; sums would be divided "
            "by the wrong number. State the public size of the data."
        )


def shared(preparation: Preparation, method: Method, task: Task) -> list[Release]:
    """The releases of both, the method's in what the preparation leaves of the budget."""
    first = preparation.releases()
    left = 1 - math.fsum(release.share for release in first)
    return first + [
        dataclasses.replace(release, share=release.share * left)
        for release in method.releases(task)
    ]
