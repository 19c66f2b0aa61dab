"""How every call of a layer gives the per-example gradients of its weights."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

from tfdp.clipping.microbatch_size import ExampleMemory
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
    """How all calls of one forward pass are handled.

    Attributes:
      by_rule: The calls that run through the rule of their layer.
      mapped: The calls that are mapped over examples.
      widen: Whether an input of a rule that leads with 1 is repeated for every example.
      whole: Why only mapping the whole model over examples will do; empty otherwise.
      loops: Whether the model has loops, which have no form side by side that XLA compiles.
      convolves: Whether XLA had better not compile the model for CPUs, for its convolutions.
      beyond_xla: What in it XLA has no form of; empty where there is nothing.
      memory: What an example takes.
    """

    by_rule: frozenset[CallKey] = frozenset()
    mapped: dict[CallKey, Mapping] = dataclasses.field(default_factory=dict)
    widen: bool = True
    whole: str = ""
    loops: bool = False
    convolves: bool = False
    beyond_xla: str = ""
    memory: ExampleMemory = ExampleMemory()

    def as_whole(self, why: str) -> Plan:
        """Returns the plan that maps the whole model."""
        return dataclasses.replace(self, by_rule=frozenset(), mapped={}, whole=why)

    @property
    def differentiable_once(self) -> bool:
        """Whether TensorFlow differentiates a forward pass only once, as with code in Python."""
        return "EagerPyFunc" in self.beyond_xla

    @property
    def suits_xla(self) -> bool:
        """Whether XLA makes it faster. Without XLA, what is mapped runs example by example."""
        return bool(self.whole or self.mapped) or not (self.convolves and only_cpus())

    def example_bytes(self, weights: Iterable[Any], examples_per_user: int = 1) -> int:
        """Returns about how much memory an example takes.

        Args:
          weights: The model's trainable variables.
          examples_per_user: Examples that are clipped together.
        """
        sizes = {id(v): 4 * math.prod(v.shape) for v in weights}
        return self.memory.in_bytes(sizes, examples_per_user, bool(self.whole))
