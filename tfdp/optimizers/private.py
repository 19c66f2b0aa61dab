"""What makes a Keras optimizer private: it applies noised gradients and nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import keras

from tfdp import checks
from tfdp.privacy.clipping import QuantileClipping
from tfdp.privacy.ledger import Ledger
from tfdp.privacy.noise import NoisyGradients
from tfdp.privacy.plan import PrivacyPlan
from tfdp.privacy.spenders import note_training


class RawGradientsError(ValueError):
    """Gradients without clipping and noise reached a private optimizer."""


# A mixin before a Keras optimizer class, which brings what is not defined here.
_MIXIN: Any = object


class PrivateOptimizer(_MIXIN):
    """Mixin before a Keras optimizer class: rejects raw gradients and keeps the settings.

    Clipping and noise happen before an optimizer sees a gradient; whatever it then does with the
    noised mean (moments, decay, trust ratios) is post-processing and spends no privacy.

    Args:
      learning_rate: As in Keras: a float or a schedule.
      l2_norm_clip: Clip norm C: the greatest L2 norm of one example's gradient, over all weights
        jointly.
      noise_multiplier: Standard deviation of the noise on the clipped sum, in units of C.
      privacy: A ``PrivacyPlan`` that fixes both, and the sampling; give it or the two numbers.
      ledger: What has been spent on the weights so far; ``compile`` sets it, and saving carries it.
      rate_factors: Factors of the learning rate, by parts of the paths of variables: a new head
        learns faster than the pretrained network under it. Weight decay outside of an optimizer's
        ``update_step`` uses the learning rate itself.
      **kwargs: Every argument of the Keras optimizer.

    Attributes:
      ledger: As the argument.
      adaptive_clip_norm: Variable of the current clip norm, if the plan lets it follow a
        quantile; else None.

    Raises:
      ValueError: Both or neither of the two ways are used, a number is out of range, or an
        argument would change what is released (gradient accumulation, loss scaling).
    """

    def __init__(
        self,
        learning_rate: Any = None,
        l2_norm_clip: float | None = None,
        noise_multiplier: float | None = None,
        privacy: PrivacyPlan | dict | None = None,
        ledger: Ledger | dict | None = None,
        rate_factors: Mapping[str, float] | None = None,
        **kwargs: Any,
    ):
        for name in ("gradient_accumulation_steps", "loss_scale_factor"):
            if kwargs.get(name) is not None:
                raise ValueError(
                    f"{type(self).__name__}({name}={kwargs[name]}): not available. A step of "
                    "fit is one private step, whatever the number of microbatches (set "
                    "microbatch_size), and gradients are never scaled before clipping."
                )
        if learning_rate is not None:
            if isinstance(learning_rate, int | float) and not math.isfinite(learning_rate):
                raise ValueError(
                    f"{type(self).__name__}: learning_rate={learning_rate}: not finite."
                )
            kwargs["learning_rate"] = learning_rate
        super().__init__(**kwargs)
        if isinstance(privacy, dict):
            privacy = PrivacyPlan.from_dict(privacy)
        if not isinstance(privacy, PrivacyPlan | None):
            raise TypeError(
                f"{type(self).__name__}: privacy={privacy!r}: expected a tfdp.PrivacyPlan."
            )
        self._privacy = privacy
        self.ledger = Ledger.from_dict(ledger) if isinstance(ledger, dict) else ledger
        self.rate_factors = _checked_factors(type(self).__name__, rate_factors or {})
        clip, noise = _checked(type(self).__name__, l2_norm_clip, noise_multiplier, privacy)
        self._clip_norm, self._noise_multiplier = clip, noise
        self.adaptive_clip_norm: keras.Variable | None = None
        if privacy is not None and isinstance(privacy.clipping, QuantileClipping):
            self.adaptive_clip_norm = self._add_clip_norm(clip)

    @property
    def privacy(self) -> PrivacyPlan | None:
        """The plan that clip norm and noise were taken from."""
        return self._privacy

    @privacy.setter
    def privacy(self, plan: Any) -> None:
        raise AttributeError(
            f"The plan of a {type(self).__name__} cannot be replaced: its noise is that of the "
            "plan it was created with. Create another optimizer with privacy=plan, and compile "
            "again; what has been spent stays counted."
        )

    @property
    def clip_norm(self) -> float:
        """Clip norm C of one example's gradient; where it follows a quantile, its start."""
        return self._clip_norm

    @property
    def noise_multiplier(self) -> float:
        """Noise standard deviation on the clipped sum, in units of C."""
        return self._noise_multiplier

    def build(self, variables: Any) -> None:
        """Builds as Keras does, and notes in which ledger the steps of these variables are."""
        paths = [variable.path for variable in variables]
        unused = [part for part in self.rate_factors if not any(part in path for path in paths)]
        if unused:
            raise ValueError(f"rate_factors: no variable has {unused} in its path, of {paths}.")
        super().build(variables)
        if self.ledger is not None and self.ledger.steps:
            note_training(variables, self.ledger)

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """Applies ``NoisyGradients``; raises ``RawGradientsError`` for anything else."""
        if not isinstance(grads, NoisyGradients):
            raise RawGradientsError(
                f"{type(self).__name__} received gradients that were neither clipped nor "
                "noised, so the step would not be private. Train with tfdp.DPModel or "
                "tfdp.make_private(model) and fit(); in a loop of your own, sum clipped "
                "gradients with tfdp.clipping.clipped_gradient_sum, add noise with "
                "tfdp.privacy.privatize, and pass its result to apply()."
            )
        super().apply(grads.gradients, trainable_variables)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates a variable as Keras does, at its own learning rate."""
        super().update_step(gradient, variable, self._own_rate(variable, learning_rate))

    def _own_rate(self, variable: Any, learning_rate: Any) -> Any:
        path = self._trainable_variables[self._get_variable_index(variable)].path
        factors = [factor for part, factor in self.rate_factors.items() if part in path]
        return learning_rate * math.prod(factors) if factors else learning_rate

    def _add_clip_norm(self, start: float) -> keras.Variable:
        with keras.src.backend.name_scope(self.name, caller=self):
            variable = keras.Variable(
                start,
                name="clip_norm",
                dtype="float32",
                trainable=False,
                aggregation="only_first_replica",
            )
        self._track_variable(variable)  # saved and restored with the optimizer
        return variable

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        for absent in ("gradient_accumulation_steps", "loss_scale_factor"):
            config.pop(absent, None)
        if self.ledger is not None:
            config["ledger"] = self.ledger.to_dict()
        if self.rate_factors:
            config["rate_factors"] = self.rate_factors
        if self.privacy:
            return {**config, "privacy": self.privacy.to_dict()}
        numbers = {"l2_norm_clip": self.clip_norm, "noise_multiplier": self.noise_multiplier}
        return {**config, **numbers}

    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> list:
        # Keras would sum over replicas here. The clipped sums were summed before the noise was
        # added; a second sum would multiply both by the number of replicas.
        return list(grads_and_vars)


def _checked(
    name: str, clip: float | None, noise: float | None, plan: PrivacyPlan | None
) -> tuple[float, float]:
    """Returns clip norm and noise multiplier, from whichever way they were given."""
    if plan is not None:
        if clip is not None or noise is not None:
            raise ValueError(
                f"{name}: give either privacy=plan, or l2_norm_clip and noise_multiplier; the "
                "plan already holds both numbers."
            )
        return plan.clip_norm, plan.noise_multiplier
    if clip is None or noise is None:
        raise ValueError(
            f"{name}: got l2_norm_clip={clip}, noise_multiplier={noise} and no plan. Give both "
            "numbers, or privacy=tfdp.PrivacyPlan(...)."
        )
    return (
        checks.positive(f"{name}: l2_norm_clip", clip),
        checks.not_negative(f"{name}: noise_multiplier", noise),
    )


def _checked_factors(name: str, factors: Any) -> dict[str, float]:
    """Returns the factors of learning rates by parts of paths."""
    if not isinstance(factors, Mapping) or not all(isinstance(part, str) for part in factors):
        raise TypeError(
            f"{name}: rate_factors={factors!r}: expected a dict from a part of variable paths to a "
            "number."
        )
    return {
        part: checks.finite(f"{name}: rate_factors[{part!r}]", factor)
        for part, factor in factors.items()
    }
