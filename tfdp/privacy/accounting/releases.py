"""The mechanisms that accountants analyze: Gaussian releases, sampled or not."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable

import dp_accounting

from tfdp.privacy.settings import Segment, StepSettings, common_adjacency


class CannotAnswerError(ArithmeticError):
    """This accountant has no trustworthy finite answer here; the message says why."""


@dataclasses.dataclass(frozen=True)
class Mechanism:
    """A Gaussian release on a sample of the examples.

    Attributes:
        kind: "gaussian" (no sampling), "poisson" or "fixed_size" (without replacement).
        multiplier: Standard deviation of the noise over the *sensitivity* of the sum. Where
            one example moves the sum by two clip norms this is half the noise multiplier.
        sampled: Expected (poisson) or exact (fixed_size) number of examples drawn.
        population: Number of examples drawn from.
    """

    kind: str
    multiplier: float
    sampled: int = 1
    population: int = 1

    @property
    def probability(self) -> float:
        """Probability of a given example to be drawn, q."""
        return self.sampled / self.population

    def event(self, count: int) -> dp_accounting.DpEvent:
        """Returns `count` such releases as dp-accounting knows them."""
        event: dp_accounting.DpEvent = dp_accounting.GaussianDpEvent(self.multiplier)
        if self.kind == "poisson":
            event = dp_accounting.PoissonSampledDpEvent(self.probability, event)
        elif self.kind == "fixed_size":
            event = dp_accounting.SampledWithoutReplacementDpEvent(
                self.population, self.sampled, event
            )
        return dp_accounting.SelfComposedDpEvent(event, count)


#: Mechanisms and how often each one ran.
Releases = dict[Mechanism, int]


def releases(segments: Iterable[Segment]) -> Releases:
    """Returns what the segments released about one example, equal mechanisms counted together.

    Raises:
        ValueError: The segments cannot be composed (see `common_adjacency`).
    """
    segments = [segment for segment in segments if segment.steps]
    common_adjacency(segments)
    counts: Counter[Mechanism] = Counter()
    for segment in segments:
        settings, steps = segment.settings, segment.steps
        multiplier = settings.noise_multiplier / settings.sensitivity
        if settings.sampling in ("poisson", "fixed_size"):
            counts[
                Mechanism(settings.sampling, multiplier, settings.batch_size, settings.num_examples)
            ] += steps
        else:
            counts[Mechanism("gaussian", multiplier)] += settings.exposures(steps)
    return dict(counts)


def unamplified(segments: Iterable[Segment]) -> Releases:
    """Returns the same steps if sampling hid nothing: one plain Gaussian release per exposure.

    Steps that were sampled count as passes over the data of their joint length. Passes without
    sampling begin anew with every segment.
    """
    steps: Counter[tuple[StepSettings, int]] = Counter()
    for number, segment in enumerate(segments):
        sampled = segment.settings.sampling in ("poisson", "fixed_size")
        steps[segment.settings, -1 if sampled else number] += segment.steps
    counts: Counter[Mechanism] = Counter()
    for (settings, _), total in steps.items():
        mechanism = Mechanism("gaussian", settings.noise_multiplier / settings.sensitivity)
        counts[mechanism] += settings.exposures(total)
    return {mechanism: count for mechanism, count in counts.items() if count}


def worst_case(counts: Releases) -> Releases:
    """Returns an upper bound on any releases: every example takes part in every one of them.

    Whether an example was drawn does not depend on it. Given whether it was, the releases differ
    by at most the unsampled ones, and hockey-stick divergences are jointly convex, so the bound
    always holds.
    """
    bound: Counter[Mechanism] = Counter()
    for mechanism, count in counts.items():
        bound[Mechanism("gaussian", mechanism.multiplier)] += count
    return dict(bound)
