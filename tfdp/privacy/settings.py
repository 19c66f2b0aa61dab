"""What one private step does, as far as its guarantee is concerned."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

from tfdp import checks
from tfdp.privacy.clipping import FlatClipping, QuantileClipping, settled

#: How far one example moves the clipped sum, in units of the clip norm, for every pair of
#: sampling and adjacency that has an analysis. The first pair of a sampling is its default.
#: Removing an example (or putting a blank in its place) takes one clipped gradient away;
#: replacing it takes one away and adds another, so the sum moves by up to two clip norms.
_SENSITIVITY = {
    ("poisson", "add_or_remove_one"): 1.0,
    ("full_batch", "add_or_remove_one"): 1.0,
    ("full_batch", "replace_one"): 2.0,
    ("fixed_size", "replace_one"): 2.0,
    ("none", "zero_out"): 1.0,
    ("none", "replace_one"): 2.0,
    ("arbitrary", "zero_out"): 1.0,
    ("arbitrary", "replace_one"): 2.0,
}

#: What rounding to the grid of secure noise adds to the sensitivity, in clip norms; see
#: `tfdp.privacy.grid`.
GRID_OVERHEAD = 2.0**-14

SAMPLINGS = tuple(dict.fromkeys(sampling for sampling, _ in _SENSITIVITY))
ADJACENCIES = tuple(dict.fromkeys(adjacency for _, adjacency in _SENSITIVITY))


def default_adjacency(sampling: str) -> str:
    """Returns the adjacency under which a sampling is analyzed unless another is asked for."""
    checks.one_of("sampling", sampling, SAMPLINGS)
    return next(adjacency for name, adjacency in _SENSITIVITY if name == sampling)


@dataclasses.dataclass(frozen=True)
class StepSettings:
    """The settings of one private step: who takes part, how it is clipped, how noisy it is.

    Attributes:
        num_examples: Number of examples, N; a public number.
        batch_size: Expected number of examples in a step, B; a public number.
        noise_multiplier: s; the noise on the clipped *sum* has standard deviation s * C.
        clip_norm: C, the largest norm of one example's contribution to the sum. Where it follows
            a quantile, its start.
        sampling: How the examples of a step are chosen.
            "poisson": each example is included independently with probability B/N.
            "full_batch": every example, in every step (B = N).
            "fixed_size": exactly B of N, uniformly, without replacement, anew each step.
            "none": passes over the data in an order that is not verified; each example at most
            once per pass. No amplification.
            "arbitrary": any example may be in any step. No amplification.
        adjacency: Which datasets count as neighbors: "add_or_remove_one", "zero_out" (an
            example becomes a blank that contributes nothing) or "replace_one". If empty, the
            sampling's usual one.
        secure: Whether the noise is a discrete Gaussian on a grid, drawn exactly, instead of one
            drawn in floating point; see `tfdp.privacy.grid`.
        examples_per_user: None where each example is protected by itself. Otherwise the unit is a
            user (or whatever a user id stands for) with all their examples, of which a step uses
            at most this many: N, B and the adjacency then count users.
        clipping: How contributions are brought to at most C; see `tfdp.privacy.clipping`. Names
            and dictionaries are accepted too.

    Raises:
        TypeError: A number is of the wrong kind.
        ValueError: A number is out of range, the batch exceeds the data, or the pair of
            sampling and adjacency has no known analysis.
    """

    num_examples: int
    batch_size: int
    noise_multiplier: float
    clip_norm: float
    sampling: str = "poisson"
    adjacency: str = ""
    secure: bool = False
    examples_per_user: int | None = None
    clipping: FlatClipping = FlatClipping()

    def __post_init__(self) -> None:
        clip_norm, clipping = settled(self.clip_norm, self.clipping)
        object.__setattr__(self, "clipping", clipping)
        checked = {
            "num_examples": checks.positive_int("num_examples", self.num_examples),
            "batch_size": checks.positive_int("batch_size", self.batch_size),
            "noise_multiplier": checks.not_negative("noise_multiplier", self.noise_multiplier),
            "clip_norm": checks.positive("clip_norm", clip_norm),
        }
        if checked["batch_size"] > checked["num_examples"]:
            raise ValueError(
                f"batch_size {self.batch_size} is larger than num_examples {self.num_examples}; "
                "a step cannot use more examples than there are: lower batch_size."
            )
        checked["secure"] = checks.boolean("secure", self.secure)
        if self.examples_per_user is not None:
            each = checks.positive_int("examples_per_user", self.examples_per_user)
            checked["examples_per_user"] = each
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        self._settle_sampling()
        if self.count_noise is not None and (self.secure or self.examples_per_user is not None):
            raise ValueError(
                "quantile clipping counts examples, and draws its noise in floating point: choose "
                "another clipping, or leave out secure=True and examples_per_user."
            )
        _ = self.gradient_noise_multiplier  # raises if the count alone costs too much

    def _settle_sampling(self) -> None:
        """Makes a batch of all examples the full batch; the pair must have an analysis."""
        adjacency = self.adjacency or default_adjacency(self.sampling)
        if self.batch_size == self.num_examples and self.sampling in ("poisson", "fixed_size"):
            object.__setattr__(self, "sampling", "full_batch")
        elif self.sampling == "full_batch" and self.batch_size < self.num_examples:
            raise ValueError(
                f"sampling 'full_batch' uses all {self.num_examples} examples in every step, "
                f"got batch_size {self.batch_size}: set batch_size to num_examples."
            )
        object.__setattr__(self, "adjacency", adjacency)
        if (self.sampling, adjacency) not in _SENSITIVITY:
            known = ", ".join(f"{s} with {a}" for s, a in _SENSITIVITY)
            raise ValueError(
                f"sampling {self.sampling!r} with adjacency {adjacency!r} has no known analysis; "
                f"the pairs that have one: {known}."
            )

    @property
    def sampling_probability(self) -> float:
        """Probability of a given example to be in a step, q = B / N."""
        return self.batch_size / self.num_examples

    @property
    def sensitivity(self) -> float:
        """How far one example moves the clipped sum, in clip norms: 1 or 2, and some rounding."""
        moved = _SENSITIVITY[self.sampling, self.adjacency]
        return moved * (1 + GRID_OVERHEAD) if self.secure else moved

    @property
    def gradient_noise_multiplier(self) -> float:
        """Standard deviation of the noise on the sum of gradients, in units of the clip norm.

        It is the noise multiplier, unless a step releases more than that sum.
        """
        if isinstance(self.clipping, QuantileClipping):
            return self.clipping.gradient_noise_multiplier(self.batch_size, self.noise_multiplier)
        return self.noise_multiplier

    @property
    def count_noise(self) -> float | None:
        """Standard deviation of the noise on the count of unclipped examples; None without one."""
        if not isinstance(self.clipping, QuantileClipping):
            return None
        if self.noise_multiplier == 0:
            return 0.0
        return self.clipping.count_noise_for(self.batch_size, self.noise_multiplier)

    def exposures(self, steps: int) -> int:
        """Returns the most steps, of so many, that use a given example if nothing is random.

        With one use per pass the count is the number of passes begun; passes are taken to be
        as short as possible (N / B, rounded down). For "full_batch" and "arbitrary" every step
        counts.
        """
        if self.sampling in ("full_batch", "arbitrary"):
            return steps
        return math.ceil(steps / (self.num_examples // self.batch_size))

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings as plain JSON values, the last three only where they are set."""
        values = {**dataclasses.asdict(self), "clipping": self.clipping.to_dict()}
        usual = {
            "secure": False,
            "examples_per_user": None,
            "clipping": FlatClipping().to_dict(),
        }
        return {k: v for k, v in values.items() if k not in usual or v != usual[k]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> StepSettings:
        """Returns the settings that `to_dict` was called on."""
        return cls(**values)


@dataclasses.dataclass(frozen=True)
class Segment:
    """A number of steps under one setting.

    Attributes:
        settings: What each of the steps did.
        steps: How many there were, 0 or more.
    """

    settings: StepSettings
    steps: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", checks.non_negative_int("steps", self.steps))


def common_adjacency(segments: Iterable[Segment]) -> str:
    """Returns the adjacency under which the segments can be added up.

    Removing an example and blanking it out change a step in the same way here (the divisor is
    public and fixed), so these two compose, as "zero_out". Neither composes with "replace_one".

    Raises:
        ValueError: The segments mix "replace_one" with another adjacency, or examples with users.
    """
    segments = list(segments)
    if len({segment.settings.examples_per_user is None for segment in segments}) > 1:
        raise ValueError(
            "steps that protect one example and steps that protect one user cannot be "
            "composed: use examples_per_user in all plans or in none, or a new model and ledger."
        )
    found = {segment.settings.adjacency for segment in segments}
    if len(found) == 1:
        return found.pop()
    if "replace_one" in found:
        raise ValueError(
            f"steps under the adjacencies {', '.join(sorted(found))} cannot be composed; "
            "use one sampling and adjacency throughout, or a new model and ledger."
        )
    return "zero_out" if found else "add_or_remove_one"
