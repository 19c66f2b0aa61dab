"""Which way every call of a layer takes to the per-example gradients of its weights."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

from tfdp.clipping.xla import only_cpus

CallKey = tuple[int, int]  # (id of the layer, index of the call in a forward pass)


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
      convolves: Whether XLA had better not compile the model for CPUs, for its convolutions.
      beyond_xla: What in it XLA has no form of; empty where there is nothing.
      activation_bytes: What an example keeps in memory, its explicit gradients aside.
      norm_bytes: What the norms take beside it for an example, of the weight that takes most.
      kept: Ids of the weights whose explicit gradient every example keeps.
      for_users: Ids of those whose gradients are formed only for the sums of users.
    """

    by_rule: frozenset[CallKey] = frozenset()
    mapped: dict[CallKey, Mapping] = dataclasses.field(default_factory=dict)
    widen: bool = True
    whole: str = ""
    loops: bool = False
    convolves: bool = False
    beyond_xla: str = ""
    activation_bytes: int = 0
    norm_bytes: int = 0
    kept: frozenset[int] = frozenset()
    for_users: frozenset[int] = frozenset()

    def as_whole(self, why: str) -> Plan:
        """Returns the plan that maps the whole model."""
        return dataclasses.replace(self, by_rule=frozenset(), mapped={}, whole=why)

    @property
    def differentiable_once(self) -> bool:
        """Whether TensorFlow gives a gradient of a forward pass only once, as of Python's code."""
        return "EagerPyFunc" in self.beyond_xla

    @property
    def suits_xla(self) -> bool:
        """Whether XLA makes it faster. Without XLA, what is mapped runs example by example."""
        return bool(self.whole or self.mapped) or not (self.convolves and only_cpus())

    def example_bytes(self, weights: Iterable[Any], examples_per_user: int = 1) -> int:
        """Returns about how much memory an example takes.

        Args:
          weights: The model's trainable variables.
          examples_per_user: Examples that are clipped together: their positions are laid end to
            end, and Gram matrices are of the square of their number. Or their gradients are added
            up, which are there twice before, in the order of their computation and in the weight's.
        """
        sizes = {id(v): 4 * math.prod(v.shape) for v in weights}
        explicit = sum(n for key, n in sizes.items() if self.whole or key in self.kept)
        if examples_per_user > 1 and not self.whole:
            formed = [n for key, n in sizes.items() if key in self.for_users]
            explicit += sum(formed) // examples_per_user + 2 * max(formed, default=0)
        return self.activation_bytes + self.norm_bytes * examples_per_user + explicit
