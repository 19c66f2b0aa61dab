"""Which way every call of a layer takes to the per-example gradients of its weights."""

from __future__ import annotations

import dataclasses

CallKey = tuple[int, int]  # (id of the layer, how manieth call of it in a forward pass)


@dataclasses.dataclass(frozen=True)
class Mapping:
    """A call whose weights' gradients are found by mapping the call over examples.

    Attributes:
      weights: Ids of the weights that the call answers for.
      batched: For every tensor among the arguments, whether it leads with the batch axis.
      random: Whether the call draws random numbers.
      loops: Whether the call has a loop.
      notice: Names the layer and its weights.
    """

    weights: frozenset[int]
    batched: tuple[bool, ...]
    random: bool
    loops: bool
    notice: str


@dataclasses.dataclass(frozen=True)
class Plan:
    """The ways of all calls of one forward pass.

    Attributes:
      by_rule: The calls that run through the rule of their layer.
      mapped: The calls that are mapped over examples.
      widen: Whether an input of a rule that leads with 1 is repeated for every example.
      whole: Why only mapping the whole model over examples will do; empty otherwise.
      loops: Whether the model has loops, which have no form side by side that XLA compiles.
    """

    by_rule: frozenset[CallKey] = frozenset()
    mapped: dict[CallKey, Mapping] = dataclasses.field(default_factory=dict)
    widen: bool = True
    whole: str = ""
    loops: bool = False
