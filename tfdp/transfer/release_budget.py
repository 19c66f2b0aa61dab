"""The budget of a last layer: the releases that share it, their noise, and the seeds behind it."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfdp import checks
from tfdp.privacy import Ledger, PrivacyPlan
from tfdp.privacy.noise import NoiseKey, NoisyGradients, privatize

#: Noise follows from names. Under these ones the published results were drawn.
_FIRST_NAMES = {
    "center": "centre",
    "center_share": "centre_share",
    "normalize": "normalise",
}


@dataclasses.dataclass(frozen=True)
class Release:
    """Something about all examples that will be released with noise.

    Attributes:
        name: What it is, unique within a fit.
        share: Part of the budget; the shares of a fit add up to 1.
        count: How many times it is released, anew each time (the steps of an optimizer).
    """

    name: str
    share: float = 1.0
    count: int = 1


class OverspentError(RuntimeError):
    """A release that the budget does not hold, or that was already made."""


class Spending:
    """Draws the noise of every release and records it in the ledger.

    Gaussian releases that use every example compose exactly: with noise multipliers s_r they are
    together one release of multiplier (sum 1 / s_r^2)^(-1/2) (Dong, Roth and Su 2022, Corollary
    3.3). A release with share f of a budget of multiplier s, made T times, therefore gets
    s * sqrt(T / f) each time, and all of them together cost exactly s.

    Args:
        plan: One full-batch step; its noise multiplier s is the whole budget.
        releases: Everything that shares the budget.
        key: The key of the noise.
        ledger: Where every release is recorded before it is made; a new one if None.

    Raises:
        ValueError: Shares do not add up to 1, a name occurs twice, the plan is not one
            full-batch step, or it asks for secure noise.
    """

    def __init__(
        self,
        plan: PrivacyPlan,
        releases: Sequence[Release],
        key: NoiseKey,
        ledger: Ledger | None = None,
    ) -> None:
        if plan.steps != 1 or plan.sampling != "full_batch":
            raise ValueError(
                "plan must be one full-batch step: PrivacyPlan(batch_size=num_examples, steps=1)."
            )
        if plan.secure:
            raise ValueError(
                "secure=True: a last layer draws its noise in floating point only. Plan with "
                "secure=False, or train the layer as a Keras model with fit()."
            )
        names = [release.name for release in releases]
        total = math.fsum(release.share for release in releases)
        if len(set(names)) != len(names) or abs(total - 1) > 1e-9:
            raise ValueError(f"releases must have distinct names and shares of sum 1: {releases}.")
        self.plan = plan
        self.ledger = ledger or Ledger()
        self.releases = {release.name: release for release in releases}
        self._key = key
        self._made: dict[str, int] = dict.fromkeys(names, 0)

    def noise_multiplier(self, name: str) -> float:
        """Returns the noise multiplier of a release, each time that it is made."""
        release = self._planned(name)
        return self.plan.noise_multiplier * math.sqrt(release.count / release.share)

    def release(self, name: str, *values: np.ndarray, sensitivity: float) -> list[np.ndarray]:
        """Adds fresh noise to sums over all examples, and records the release before returning.

        Args:
            name: The release.
            *values: What is released, float arrays.
            sensitivity: The largest norm C of one example's contribution to all of them jointly.
                The noise has the standard deviation noise_multiplier(name) * C.

        Raises:
            OverspentError: The release has been made as often as it may.
        """
        sums = [tf.convert_to_tensor(value, tf.float64) for value in values]
        noisy = self.release_mean(name, sums, sensitivity=sensitivity, divisor=1.0)
        return [np.asarray(value) for value in noisy.gradients]

    def release_mean(
        self, name: str, sums: Sequence[Any], *, sensitivity: float, divisor: float
    ) -> NoisyGradients:
        """Does the same for a clipped gradient sum, and returns the mean for private optimizers."""
        release = self._planned(name)
        number = self._made[name]
        if number >= release.count:
            raise OverspentError(
                f"{name!r} has been released {number} times, which is all that its share allows."
            )
        noise = self.noise_multiplier(name)
        self.ledger.record(
            dataclasses.replace(self.plan.settings, noise_multiplier=noise, clip_norm=sensitivity)
        )
        self._made[name] = number + 1
        seeds = self._key.child(_FIRST_NAMES.get(name, name)).seeds(number, len(sums))
        return privatize(sums, sensitivity, noise, divisor, seeds)

    def public_normal(self, shape: tuple[int, ...]) -> np.ndarray:
        """Returns standard normal numbers, float32, that depend on no example."""
        seed = self._key.child("public").seeds(0, 1)[0]
        return tf.random.stateless_normal(shape, seed).numpy()

    @property
    def note(self) -> str:
        """The releases and their shares, in one line."""
        parts = [
            f"{release.name} ({release.share:.1%}"
            + (f", {release.count} times)" if release.count > 1 else ")")
            for release in self.releases.values()
        ]
        return "the budget is shared by " + ", ".join(parts)

    def table(self) -> list[dict[str, Any]]:
        """Returns every release: its share of the budget, its noise, how often it was made."""
        return [
            {
                "name": name,
                "share": release.share,
                "planned": release.count,
                "made": self._made[name],
                "noise_multiplier": self.noise_multiplier(name),
            }
            for name, release in self.releases.items()
        ]

    def _planned(self, name: str) -> Release:
        if name not in self.releases:
            raise OverspentError(f"{name!r} is not in the budget: {', '.join(self.releases)}.")
        return self.releases[name]


def whole_budget(
    num_examples: int,
    epsilon: float | None,
    delta: float,
    noise_multiplier: float | None = None,
    adjacency: str = "add_or_remove_one",
) -> PrivacyPlan:
    """Returns the budget as the plan of one release that uses every example once."""
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


def seed_for(seed: int | None, *purpose: object) -> int | None:
    """Returns a seed for one purpose, of many that follow from the same seed.

    The cost of several releases adds up as accounted only if each has noise of its own. Two
    releases under the same noise give away their exact difference, even to people who do not know
    the seed.

    Args:
        seed: What they share; None, for fresh entropy, stays None.
        *purpose: Everything that tells this use of the seed from others: plain values, settings
            (dataclasses), plans, mappings, sequences, arrays.

    Returns:
        128 bits of a keyed hash of the purpose. Whoever knows the seed knows them too.

    Raises:
        TypeError: The seed is not a whole number.
    """
    checks.seed(seed)
    if seed is None:
        return None
    return NoiseKey.from_seed(seed).child(_words(purpose)).as_int()


def key_from(seed: int | None) -> NoiseKey:
    """Returns the key of noise: reproducible with a seed, from the system's entropy without."""
    return NoiseKey.from_entropy() if seed is None else NoiseKey.from_seed(seed)


def _words(thing: object) -> str:
    """Returns the same text for the same settings in any process, and another one for others."""
    if thing is None or isinstance(thing, bool | int | float | str | bytes):
        return repr(thing)
    if isinstance(thing, np.generic):
        return repr(thing.item())
    if isinstance(thing, Mapping):
        named = ((_FIRST_NAMES.get(key, key), value) for key, value in thing.items())
        return _listed("{}", (f"{_words(key)}:{_words(value)}" for key, value in named))
    if isinstance(thing, list | tuple):
        return _listed("[]", map(_words, thing))
    if isinstance(thing, PrivacyPlan):
        return _words(_plan_facts(thing))
    name = type(thing).__name__
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        fields = {field.name: getattr(thing, field.name) for field in dataclasses.fields(thing)}
        return name + _words(fields)
    if isinstance(thing, np.ndarray):
        return f"{thing.dtype}{thing.shape}{hashlib.blake2b(thing.tobytes()).hexdigest()}"
    if hasattr(thing, "get_config"):  # optimizers of Keras, which numbers them by name
        return name + _words({k: v for k, v in thing.get_config().items() if k != "name"})
    return name


def _plan_facts(plan: PrivacyPlan) -> dict[str, object]:
    """Returns what tells plans apart, under names that stay whatever a plan calls them."""
    return {
        "num_examples": plan.num_examples,
        "batch_size": plan.batch_size,
        "steps": plan.steps,
        "clip_norm": plan.clip_norm,
        "delta": plan.delta,
        "noise_multiplier": plan.noise_multiplier,
        "target_epsilon": plan.target_epsilon,
        "sampling": plan.sampling,
        "adjacency": plan.adjacency,
        "accountant": plan.accountant,
        "secure": plan.secure,
        "records_per_unit": plan.examples_per_user,
        "clipping": plan.clipping.to_dict(),
    }


def _listed(brackets: str, items: Iterable[str]) -> str:
    return brackets[0] + ",".join(items) + brackets[1]
