"""Which of the exact ways to a norm and a clipped sum is the cheapest.

For a weight ``[p, q]`` used at T positions of an example, in multiplications an example:

- explicit: form the gradient (T p q), square it, and later add it up (a pass over p q numbers).
- Gram: T^2 (p + q) for the norm, and T p q for the sum, from inputs and output gradients.
"""

from __future__ import annotations

import math

# How many multiplications of a matrix product take the time of passing over one number of the
# explicit gradient, which is written, squared and added up. Where the two ways take the same time,
# Gram matrices need less memory, so the number lies at the upper end of what is measured.
_PASS = 40

# The same for a number of a Gram matrix that is added to another.
_SHIFT = 10


def explicit_is_cheaper(positions: int, p: int, q: int) -> bool:
    """Whether to form the per-example gradients ``[p, q]`` rather than Gram matrices."""
    if p * q <= positions:  # the gradient is free, and the norm has no rounding
        return True
    if p * q > positions * (p + q):  # it would need more memory than what it is formed from
        return False
    return _PASS * p * q < positions * positions * (p + q)


def cheapest_for_convolution(product: int, gram: int, numbers: int, groups: int, held: int) -> str:
    """Returns "explicit", "streamed" or "gram" for a convolution of ``groups`` blocks.

    Streamed: form the gradient for the norm, one place along its first axis after the other, throw
    it away, and form the clipped sum from inputs and output gradients.

    Args:
      product: Multiplications of the gradient of one group.
      gram: Those of the norm by Gram matrices.
      numbers: Numbers in the kernel of one group.
      groups: Number of groups.
      held: Numbers an example that the layer's inputs and outputs have.
    """
    costs = {"streamed": 2 * product, "gram": gram + product}
    if groups * numbers <= 2 * held:  # else more than activations and their gradients take
        costs["explicit"] = product + _PASS * numbers
    return min(costs, key=lambda way: costs[way])


def shifts_cost(grid: tuple[int, ...], starts: list[list[int]]) -> int:
    """What adding up shifted blocks of a Gram matrix over a grid takes, in multiplications."""
    return _SHIFT * math.prod(grid) ** 2 * sum(map(len, starts))
