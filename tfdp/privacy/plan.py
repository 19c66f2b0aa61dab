"""The plan of a private training run: the one object that fixes sampling, noise and cost."""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from tfdp import checks
from tfdp.privacy import calibration
from tfdp.privacy._delta import checked_delta
from tfdp.privacy.accounting import ACCOUNTANTS, Guarantee
from tfdp.privacy.accounting import epsilon as account
from tfdp.privacy.clipping import FlatClipping, settled
from tfdp.privacy.settings import Segment, StepSettings

_MILESTONES = 20


@dataclasses.dataclass(frozen=True, init=False)
class PrivacyPlan:
    """How many noisy steps will be made, on whom, and what they cost.

    Exactly one of `epsilon` (with `delta`) and `noise_multiplier` is given; the other follows.
    The same numbers drive sampling, clipping, noise and the report, so they cannot disagree.

    Attributes:
        num_examples: number of records, N. It must be public: state it, do not take `len(data)`
            of data whose size is secret.
        batch_size: expected number of records in a step, B.
        steps: number of steps, T.
        clip_norm: the largest norm of one record's contribution, C. Given by layer, as in
            ``{"encoder": 0.1, "head": 0.2}``, layers are clipped apart, and C is the root of the
            sum of squares.
        delta: the delta of the guarantee, or None if no guarantee is asked for.
        noise_multiplier: s. The noise on the clipped *sum* has standard deviation s * C.
        target_epsilon: the epsilon that was asked for, or None.
        sampling: "poisson", "full_batch" (what "poisson" becomes at B = N), "fixed_size",
            "none" or "arbitrary"; see `StepSettings`.
        adjacency: which data sets count as neighbours; see `StepSettings`.
        accountant: "auto" (the tightest valid one), "gaussian", "pld" or "rdp".
        secure: whether noise is drawn exactly, in integers on a grid, so that attacks on
            floating-point noise do not apply; see `tfdp.privacy.grid`. Drawing it takes 14 times
            the processor time of floating-point noise (0.2 s for a million weights), and the same
            epsilon needs 0.006 % more of it.
        examples_per_user: None protects each record by itself. A number protects a person with
            all their records, of which a step uses at most so many: `num_examples` and
            `batch_size` then count persons, and `fit` needs `user_ids`.
        clipping: "flat" (``min(1, C / norm)``), "automatic", "per_layer" or "quantile" (C follows
            a quantile of the norms, at a cost that is within the same epsilon); or one of
            `AutomaticClipping`, `PerLayerClipping` and `QuantileClipping`, with arguments.
    """

    num_examples: int
    batch_size: int
    steps: int
    clip_norm: float
    delta: float | None
    noise_multiplier: float
    target_epsilon: float | None
    sampling: str
    adjacency: str
    accountant: str
    secure: bool
    examples_per_user: int | None
    clipping: FlatClipping

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
        target_epsilon: None = None,
    ) -> None:
        """Checks everything, and calibrates the noise if epsilon is given (a second or two).

        Raises:
            TypeError: a number is of the wrong kind.
            ValueError: a number is out of range, both or none of `epsilon` and
                `noise_multiplier` are given, `epsilon` is given without `delta`, or `secure`
                without noise.
        """
        if target_epsilon is not None:  # an attribute, which dataclasses.replace passes on
            raise TypeError(
                f"target_epsilon={target_epsilon}: dataclasses.replace cannot say whether the "
                "noise or epsilon is to stay. Use plan.replace(...), which keeps epsilon; or give "
                "PrivacyPlan(...) one of epsilon and noise_multiplier."
            )
        if (epsilon is None) == (noise_multiplier is None):
            raise ValueError(
                "give exactly one of epsilon and noise_multiplier and leave the other None, got "
                f"epsilon={epsilon!r}, noise_multiplier={noise_multiplier!r}."
            )
        steps = checks.positive_int("steps", steps)
        checks.one_of("accountant", accountant, ACCOUNTANTS)
        noise = 0.0 if noise_multiplier is None else noise_multiplier
        bound, way = settled(clip_norm, None if clipping == "flat" else clipping)
        # Whatever the way of clipping, it costs what the noise multiplier says.
        flat = StepSettings(
            num_examples,
            batch_size,
            noise,
            bound,
            sampling,
            adjacency or "",
            secure,
            examples_per_user,
        )
        settings = dataclasses.replace(flat, clipping=way)
        if secure and noise_multiplier == 0:
            raise ValueError("secure=True is about noise, and noise_multiplier is 0: raise it.")
        if delta is not None:
            delta = _checked_delta(delta, settings.num_examples)
        if epsilon is not None:
            epsilon = checks.positive("epsilon", epsilon)
            if delta is None:
                raise ValueError("epsilon needs a delta: give delta, commonly below 1/N.")
            noise = _calibrated(epsilon, delta, flat, steps, accountant)
            settings = dataclasses.replace(settings, noise_multiplier=noise)
        values = {
            **settings.to_dict(),
            "secure": settings.secure,
            "examples_per_user": settings.examples_per_user,
            "clipping": way,
            "steps": steps,
            "delta": delta,
            "target_epsilon": epsilon,
            "accountant": accountant,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def settings(self) -> StepSettings:
        """The settings of each step, as the ledger records them."""
        return StepSettings(
            self.num_examples,
            self.batch_size,
            self.noise_multiplier,
            self.clip_norm,
            self.sampling,
            self.adjacency,
            self.secure,
            self.examples_per_user,
            self.clipping,
        )

    @property
    def sampling_probability(self) -> float:
        """Chance of a given record to be in a step, q = B / N."""
        return self.batch_size / self.num_examples

    @property
    def denominator(self) -> float:
        """What the noisy sum is divided by: the expected batch size, a public constant.

        Never the realised batch: how many records a Poisson draw took depends on who is in the
        data, and dividing by it would let one record rescale all the others, and the noise.
        Nor anything computed from the private data's length, which tells neighbours apart.
        A batch of 10 where 16 were expected is divided by 16 like any other.
        """
        return float(self.batch_size)

    @property
    def epsilon(self) -> float:
        """Epsilon of the whole plan. At or below `target_epsilon` if there is one.

        Raises:
            ValueError: the plan has no delta.
        """
        return self.guarantee().epsilon

    def guarantee(self, steps: int | None = None, accountant: str | None = None) -> Guarantee:
        """The guarantee after a number of steps, with the accountant that gave it.

        Args:
            steps: number of steps, 0 or more; all of the plan's if left out.
            accountant: another accountant than the plan's own.
        """
        steps = self.steps if steps is None else checks.non_negative_int("steps", steps)
        return _guarantee(self.settings, steps, self._delta(), accountant or self.accountant)

    def epsilon_after(self, steps: int, accountant: str | None = None) -> float:
        """Epsilon after a number of steps.

        With "rdp" or at q = 1 a call takes well under a millisecond. With "pld", or "auto"
        under Poisson sampling, the first takes up to a second and each new number of steps
        about a tenth; answers are kept. For a progress bar see `epsilon_bound`.
        """
        return self.guarantee(steps, accountant).epsilon

    def epsilon_bound(self, steps: int) -> float:
        """A valid and quick upper bound on epsilon after `steps`, for progress displays.

        It never falls as steps go by, and at the last step it is the plan's final epsilon. It
        is the cheap Renyi figure, capped by the plan's accountant at the next of twenty
        milestones: more steps never cost less. Twenty calls out of all take some hundredths of
        a second, the others under a millisecond.
        """
        steps = checks.non_negative_int("steps", steps)
        if steps == self.steps:
            return self.epsilon
        share = max(1, math.ceil(self.steps / _MILESTONES))
        milestone = math.ceil(steps / share) * share
        delta = self._delta()
        there = _guarantee(self.settings, milestone, delta, self.accountant, quickly=True).epsilon
        if steps <= self.steps:
            there = min(there, self.epsilon)
        return min(self.epsilon_after(steps, "rdp"), there)

    def affordable_steps(self, spent: Iterable[Segment] = ()) -> int:
        """How many more steps of this plan fit after what has been spent already.

        If everything so far ran under this plan's settings it is what is left of the plan's
        steps. Otherwise it is what keeps all of it within the plan's epsilon (the target if
        there is one), and never more than the plan's steps. Where that is infinite, the steps
        still are a wall.

        Args:
            spent: segments of the ledger.
        """
        spent = [segment for segment in spent if segment.steps]
        settings = self.settings
        if all(segment.settings == settings for segment in spent):
            return max(0, self.steps - sum(segment.steps for segment in spent))
        budget = self.epsilon if self.target_epsilon is None else self.target_epsilon
        if math.isinf(budget):
            own = sum(segment.steps for segment in spent if segment.settings == settings)
            return max(0, self.steps - own)
        return calibration.steps_for_epsilon(
            budget, self._delta(), settings, accountant=self.accountant, spent=spent,
            at_most=self.steps,
        )  # fmt: skip

    def replace(self, **changes: Any) -> PrivacyPlan:
        """A plan like this one but for some arguments of the constructor.

        The noise is calibrated anew to the epsilon that was asked for, if one was; otherwise it
        stays, and epsilon follows.

        Args:
            **changes: arguments of the constructor.
        """
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        target = values.pop("target_epsilon")
        plain = self.clipping.kind in ("flat", "per_layer")
        if plain and isinstance(changes.get("clip_norm"), Mapping):
            del values["clipping"]  # the new bounds by layer say how to clip
        if target is not None and "noise_multiplier" not in changes:
            changes = {"epsilon": target, **changes}
        if "epsilon" in changes:
            del values["noise_multiplier"]
        return PrivacyPlan(**{**values, **changes})

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON values."""
        return {**dataclasses.asdict(self), "clipping": self.clipping.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PrivacyPlan:
        """The inverse of `to_dict`; nothing is calibrated again."""
        values = dict(values)
        target = values.pop("target_epsilon", None)
        plan = cls(**values)
        object.__setattr__(plan, "target_epsilon", target)
        return plan

    def _delta(self) -> float:
        if self.delta is None:
            raise ValueError("epsilon is only defined with a delta: give the plan its delta.")
        return self.delta


def steps_for_epochs(epochs: float, num_examples: int, batch_size: int) -> int:
    """Updates that make up a number of passes over the data on average: ceil(epochs * N / B)."""
    epochs = checks.positive("epochs", epochs)
    records = epochs * checks.positive_int("num_examples", num_examples)
    return max(1, math.ceil(records / checks.positive_int("batch_size", batch_size) - 1e-9))


def _checked_delta(delta: float, num_examples: int) -> float:
    delta = checked_delta(delta)
    if delta >= 1 / num_examples:
        warnings.warn(
            f"delta {delta:g} is not below 1/num_examples ({1 / num_examples:.3g}): a mechanism "
            "that publishes one record in full would satisfy it; use a smaller delta.",
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
