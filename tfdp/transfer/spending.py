"""A privacy budget shared out over named releases, and the noise drawn for each of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfdp.privacy import Ledger, PrivacyPlan
from tfdp.privacy.noise import NoiseKey, NoisyGradients, privatize


@dataclasses.dataclass(frozen=True)
class Release:
    """Something about all rows that will be published with noise.

    Attributes:
        name: what it is, unique within a fit.
        share: part of the budget; the shares of a fit add up to 1.
        count: how many times it is published, anew each time (the steps of an optimiser).
    """

    name: str
    share: float = 1.0
    count: int = 1


class OverspentError(RuntimeError):
    """A release that the budget does not hold, or that was already made."""


class Spending:
    """Draws the noise of every release and keeps the book of them.

    Gaussian releases that use every row compose exactly: with noise multipliers s_r they are
    together one release of multiplier (sum 1 / s_r^2)^(-1/2) (Dong, Roth and Su 2022, Corollary
    3.3). A release with share f of a budget of multiplier s, made T times, therefore gets
    s * sqrt(T / f) each time, and all of them together cost exactly s.

    Args:
        plan: one full-batch step; its noise multiplier s is the whole budget.
        releases: all that the budget is shared out over.
        key: the key of the noise.
        ledger: where every publication is recorded before it is made; a new one if None.

    Raises:
        ValueError: shares do not add up to 1, a name occurs twice, the plan is not one
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
                "secure=True: the releases of a last layer have no noise on a grid. Plan with "
                "secure=False, or train the layer as a model with fit()."
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
        """The noise multiplier of one publication of a release."""
        release = self._release(name)
        return self.plan.noise_multiplier * math.sqrt(release.count / release.share)

    def publish(self, name: str, *values: np.ndarray, sensitivity: float) -> list[np.ndarray]:
        """Adds fresh noise to sums over all rows, and books the release before returning.

        Args:
            name: the release.
            *values: what is published, float arrays.
            sensitivity: the largest norm C of one row's contribution to all of them jointly. The
                noise has the standard deviation noise_multiplier(name) * C.

        Raises:
            OverspentError: the release has been made as often as it may.
        """
        sums = [tf.convert_to_tensor(value, tf.float64) for value in values]
        noisy = self.publish_mean(name, sums, sensitivity=sensitivity, divisor=1.0)
        return [np.asarray(value) for value in noisy.gradients]

    def publish_mean(
        self, name: str, sums: Sequence[Any], *, sensitivity: float, divisor: float
    ) -> NoisyGradients:
        """The same for a clipped gradient sum, as the mean that private optimizers take."""
        release = self._release(name)
        number = self._made[name]
        if number >= release.count:
            raise OverspentError(
                f"{name!r} has been published {number} times, all that its share allows."
            )
        noise = self.noise_multiplier(name)
        self.ledger.record(
            dataclasses.replace(self.plan.settings, noise_multiplier=noise, clip_norm=sensitivity)
        )
        self._made[name] = number + 1
        seeds = self._key.child(name).seeds(number, len(sums))
        return privatize(sums, sensitivity, noise, divisor, seeds)

    def public_normal(self, shape: tuple[int, ...]) -> np.ndarray:
        """Standard normal numbers that depend on no row, float32; for random first weights."""
        seed = self._key.child("public").seeds(0, 1)[0]
        return tf.random.stateless_normal(shape, seed).numpy()

    @property
    def note(self) -> str:
        """The releases in a line, for people."""
        parts = [
            f"{release.name} ({release.share:.1%}"
            + (f", {release.count} times)" if release.count > 1 else ")")
            for release in self.releases.values()
        ]
        return "the budget is shared by " + ", ".join(parts)

    def table(self) -> list[dict[str, Any]]:
        """Every release, with its share of the budget, its noise and how often it was made."""
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

    def _release(self, name: str) -> Release:
        if name not in self.releases:
            raise OverspentError(f"{name!r} is not in the budget: {', '.join(self.releases)}.")
        return self.releases[name]
