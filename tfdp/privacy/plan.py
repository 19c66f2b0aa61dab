"""The plan of a private training run: it fixes sampling, clipping, noise and the guarantee."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from tfdp import checks
from tfdp.privacy import calibration
from tfdp.privacy.accounting import ACCOUNTANTS, Guarantee, checked_delta
from tfdp.privacy.accounting import epsilon as account
from tfdp.privacy.clipping import FlatClipping, settled
from tfdp.privacy.settings import Segment, StepSettings

_MILESTONES = 20
#: Fields of the settings that are arguments of the plan.
_OF_SETTINGS = tuple(field.name for field in dataclasses.fields(StepSettings))


@dataclasses.dataclass(frozen=True, init=False)
class PrivacyPlan:
    """How many noisy steps will be made, on what data, and what they cost.

    Exactly one of `epsilon` (with `delta`) and `noise_multiplier` is given; the other follows.
    The same numbers drive sampling, clipping, noise and the report, so they cannot disagree.

    Attributes:
        settings: What each step does, as the ledger records it: number of examples N, expected
            batch size B, noise multiplier, clip norm C, sampling, adjacency, secure noise,
            examples per user and clipping. Each of them is an attribute of the plan, too.
        steps: Number of steps, T.
        delta: The delta of the guarantee, or None if no guarantee is asked for.
        target_epsilon: The epsilon that was asked for, or None.
        accountant: "auto" (the tightest valid one), "gaussian", "pld" or "rdp".
    """

    settings: StepSettings
    steps: int
    delta: float | None
    target_epsilon: float | None
    accountant: str

    def __init__(
        self,
        num_examples: int,
        batch_size: int,
        steps: int,
        clip_norm: float | Mapping[str, float],
        epsilon: float | None = None,
        delta: float | None = None,
        noise_multiplier: float | None = None,
        sampling: str = "poisson",
        accountant: str = "auto",
        adjacency: str | None = None,
        secure: bool = False,
        examples_per_user: int | None = None,
        clipping: FlatClipping | Mapping[str, Any] | str = "flat",
    ) -> None:
        """Checks everything, and calibrates the noise if epsilon is given (up to 5 seconds).

        Args:
            num_examples: Number of examples, N. It must be a public number: do not pass the
                `len(data)` of data whose size is secret.
            batch_size: Expected number of examples in a step, B.
            steps: Number of steps, T.
            clip_norm: The largest norm of one example's contribution, C. Given by layer, as in
                ``{"encoder": 0.1, "head": 0.2}``, each layer is clipped by itself, and C is the
                root of the sum of squares.
            epsilon: The target for the whole plan.
            delta: The delta of the guarantee, commonly below 1/N.
            noise_multiplier: s. The noise on the clipped *sum* has standard deviation s * C.
            sampling: "poisson", "full_batch" (what "poisson" becomes at B = N), "fixed_size",
                "none" or "arbitrary"; see `StepSettings`.
            accountant: "auto" (the tightest valid one), "gaussian", "pld" or "rdp".
            adjacency: Which datasets count as neighbors; see `StepSettings`.
            secure: Whether noise is drawn exactly, in integers on a grid, so that attacks on
                floating-point noise do not apply; see `tfdp.privacy.grid`. Drawing it takes 14
                times the processor time of floating-point noise (0.2 s for a million weights),
                and the same epsilon needs 0.006% more of it.
            examples_per_user: If None, each example is protected by itself. A number protects a
                user with all their examples, of which a step uses at most that many.
                `num_examples` and `batch_size` then count users, and `fit` needs `user_ids`.
            clipping: "flat" (``min(1, C / norm)``), "automatic", "per_layer" or "quantile" (C
                follows a quantile of the norms, paid for within the same epsilon); or an object
                of `AutomaticClipping`, `PerLayerClipping` or `QuantileClipping`.

        Raises:
            TypeError: A number is of the wrong kind.
            ValueError: A number is out of range, both or none of `epsilon` and
                `noise_multiplier` are given, `epsilon` is given without `delta`, or `secure`
                without noise.
        """
        if (epsilon is None) == (noise_multiplier is None):
            raise ValueError(
                "give exactly one of epsilon and noise_multiplier and leave the other None, got "
                f"epsilon={epsilon!r}, noise_multiplier={noise_multiplier!r}."
            )
        steps = checks.positive_int("steps", steps)
        checks.one_of("accountant", accountant, ACCOUNTANTS)
        norm, way = settled(clip_norm, None if clipping == "flat" else clipping)
        step = StepSettings(
            num_examples=num_examples,
            batch_size=batch_size,
            noise_multiplier=0.0 if noise_multiplier is None else noise_multiplier,
            clip_norm=norm,
            sampling=sampling,
            adjacency=adjacency or "",
            secure=secure,
            examples_per_user=examples_per_user,
        )
        if secure and noise_multiplier == 0:
            raise ValueError(
                "secure=True draws exact noise, but noise_multiplier is 0: set it above 0."
            )
        if delta is not None:
            delta = _public_delta(delta, step.num_examples)
        if epsilon is not None:
            epsilon = checks.positive("epsilon", epsilon)
            if delta is None:
                raise ValueError("epsilon needs a delta: give delta, commonly below 1/N.")
            # However examples are clipped, the noise multiplier alone decides the cost.
            noise = _calibrated(epsilon, delta, step, steps, accountant)
            step = dataclasses.replace(step, noise_multiplier=noise)
        step = dataclasses.replace(step, clipping=way)
        vars(self).update(  # frozen: set once, here
            settings=step,
            steps=steps,
            delta=delta,
            target_epsilon=epsilon,
            accountant=accountant,
        )

    @property
    def num_examples(self) -> int:
        """Number of examples, or of users, N."""
        return self.settings.num_examples

    @property
    def batch_size(self) -> int:
        """Expected batch size, B."""
        return self.settings.batch_size

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation of the noise on the clipped sum, in clip norms."""
        return self.settings.noise_multiplier

    @property
    def clip_norm(self) -> float:
        """The largest norm of one example's contribution to the sum, C."""
        return self.settings.clip_norm

    @property
    def sampling(self) -> str:
        """How the examples of a step are chosen."""
        return self.settings.sampling

    @property
    def adjacency(self) -> str:
        """Which datasets count as neighbors."""
        return self.settings.adjacency

    @property
    def secure(self) -> bool:
        """Whether noise is drawn exactly, on a grid."""
        return self.settings.secure

    @property
    def examples_per_user(self) -> int | None:
        """The most examples of a user in a step; None where each example is protected alone."""
        return self.settings.examples_per_user

    @property
    def clipping(self) -> FlatClipping:
        """How examples are clipped below the bound C."""
        return self.settings.clipping

    @property
    def sampling_probability(self) -> float:
        """Probability of a given example to be in a step, q = B / N."""
        return self.settings.sampling_probability

    @property
    def denominator(self) -> float:
        """What the noisy sum is divided by: the expected batch size, a public constant.

        Never the realized batch size: how many examples a Poisson draw took depends on who is in
        the data, and dividing by it would let one example rescale all the others, and the noise.
        Nor anything computed from the private data's length, which tells neighbors apart. A
        batch of 10 where 16 were expected is divided by 16 like any other.
        """
        return float(self.batch_size)

    @property
    def epsilon(self) -> float:
        """Epsilon of the whole plan. At or below `target_epsilon` if there is one.

        Raises:
            ValueError: The plan has no delta.
        """
        return self.guarantee().epsilon

    def guarantee(self, steps: int | None = None, accountant: str | None = None) -> Guarantee:
        """Returns the guarantee after a number of steps, with the accountant that gave it.

        Args:
            steps: Number of steps, 0 or more; all of the plan's if None.
            accountant: Another accountant than the plan's own.

        Raises:
            ValueError: The plan has no delta.
        """
        steps = self.steps if steps is None else checks.non_negative_int("steps", steps)
        return _guarantee(self.settings, steps, self._delta(), accountant or self.accountant)

    def epsilon_after(self, steps: int, accountant: str | None = None) -> float:
        """Returns epsilon after a number of steps.

        With "rdp" or at q = 1 a call takes well under a millisecond. With "pld", or "auto"
        under Poisson sampling, the first takes up to a second and each new number of steps
        about a tenth; answers are kept. For a progress bar see `epsilon_bound`.
        """
        return self.guarantee(steps, accountant).epsilon

    def epsilon_bound(self, steps: int) -> float:
        """Returns a valid and quick upper bound on epsilon after `steps`, for progress displays.

        It never falls as steps go by, and at the last step it is the plan's final epsilon. It is
        the cheap Rényi figure, capped by the plan's accountant at the next of twenty milestones:
        more steps never cost less. Twenty calls in all take some hundredths of a second, the
        others under a millisecond.
        """
        steps = checks.non_negative_int("steps", steps)
        if steps == self.steps:
            return self.epsilon
        stretch = max(1, math.ceil(self.steps / _MILESTONES))
        milestone = math.ceil(steps / stretch) * stretch
        delta = self._delta()
        there = _guarantee(self.settings, milestone, delta, self.accountant, quickly=True).epsilon
        if steps <= self.steps:
            there = min(there, self.epsilon)
        return min(self.epsilon_after(steps, "rdp"), there)

    def affordable_steps(self, spent: Iterable[Segment] = ()) -> int:
        """Returns how many more steps of this plan fit after what has been spent already.

        If everything so far ran under this plan's settings, it is what is left of the plan's
        steps. Otherwise it is what keeps all of it within the plan's epsilon (the target if
        there is one), and never more than the plan's steps. Where that is infinite, the number
        of steps is still a limit.

        Args:
            spent: Segments of the ledger.
        """
        spent = [segment for segment in spent if segment.steps]
        own = sum(segment.steps for segment in spent if segment.settings == self.settings)
        budget = math.inf
        if any(segment.settings != self.settings for segment in spent):
            budget = self.epsilon if self.target_epsilon is None else self.target_epsilon
        if math.isinf(budget):
            return max(0, self.steps - own)
        return calibration.steps_for_epsilon(
            budget,
            self._delta(),
            self.settings,
            accountant=self.accountant,
            spent=spent,
            at_most=self.steps,
        )

    def replace(self, **changes: Any) -> PrivacyPlan:
        """Returns a plan like this one but for some arguments of the constructor.

        The noise is calibrated anew to the epsilon that was asked for, if one was; otherwise it
        stays, and epsilon follows. `dataclasses.replace` cannot tell which of them is to stay,
        and raises TypeError.

        Args:
            **changes: Arguments of the constructor.
        """
        values: dict[str, Any] = {name: getattr(self, name) for name in _OF_SETTINGS}
        values |= {"steps": self.steps, "delta": self.delta, "accountant": self.accountant}
        plain = self.clipping.kind in ("flat", "per_layer")
        if plain and isinstance(changes.get("clip_norm"), Mapping):
            del values["clipping"]  # the new clip norms by layer say how to clip
        if self.target_epsilon is not None and "noise_multiplier" not in changes:
            changes = {"epsilon": self.target_epsilon, **changes}
        if "epsilon" in changes:
            del values["noise_multiplier"]
        return PrivacyPlan(**{**values, **changes})

    def to_dict(self) -> dict[str, Any]:
        """Returns the plan as plain JSON values."""
        names = (
            "num_examples batch_size steps clip_norm delta noise_multiplier target_epsilon "
            "sampling adjacency accountant secure examples_per_user"
        ).split()
        values = {name: getattr(self, name) for name in names}
        return {**values, "clipping": self.clipping.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PrivacyPlan:
        """Returns the plan that `to_dict` was called on; nothing is calibrated again."""
        values = dict(values)
        target = values.pop("target_epsilon", None)
        return cls(**values).with_target(target)

    def with_target(self, epsilon: float | None) -> PrivacyPlan:
        """Returns the plan with its noise as it is, and another `target_epsilon`."""
        plan = copy.copy(self)
        vars(plan)["target_epsilon"] = epsilon
        return plan

    def _delta(self) -> float:
        if self.delta is None:
            raise ValueError("epsilon is only defined with a delta: give the plan its delta.")
        return self.delta


def _public_delta(delta: float, num_examples: int) -> float:
    delta = checked_delta(delta)
    if delta >= 1 / num_examples:
        warnings.warn(
            f"delta {delta:g} is not below 1/num_examples ({1 / num_examples:.3g}): a mechanism "
            "that releases one example in full would satisfy it; use a smaller delta.",
            stacklevel=3,
        )
    return delta


@functools.lru_cache(maxsize=1024)
def _guarantee(
    settings: StepSettings, steps: int, delta: float, accountant: str, *, quickly: bool = False
) -> Guarantee:
    return account([Segment(settings, steps)], delta, accountant, quickly=quickly)


@functools.lru_cache(maxsize=64)
def _calibrated(
    epsilon: float, delta: float, settings: StepSettings, steps: int, accountant: str
) -> float:
    return calibration.noise_for_epsilon(epsilon, delta, settings, steps, accountant=accountant)
