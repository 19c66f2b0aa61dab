"""DP-LAMB: layer-wise adaptive steps on clipped and noised gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from tfdp.optimizers.private import PrivateOptimizer


@keras.saving.register_keras_serializable("tfdp")
class DPLAMB(PrivateOptimizer, keras.optimizers.Lamb):
    """LAMB on clipped and noised gradients (Mehta et al. 2022; You et al. 2020, Algorithm 2).

    The trust ratio ``|w| / |u|`` scales the step of every weight, u being Adam's direction plus
    ``weight_decay * w``. All of it acts on the noised mean, so it spends no privacy.

    Keras's own ``Lamb`` takes the weight decay outside the trust ratio; ``decay_in_ratio=False``
    gives that.

    Args:
      learning_rate: A float or a schedule.
      decay_in_ratio: Whether weight decay enters the trust ratio, as in the paper.
      exclude_from_layer_adaptation: Parts of variable paths whose trust ratio is 1; biases and
        normalization weights are customary: ``["bias", "gamma", "beta"]``.
      exclude_from_decay: Parts of variable paths without weight decay.
      **kwargs: ``l2_norm_clip``, ``noise_multiplier``, ``privacy`` of ``PrivateOptimizer`` and
        every argument of ``keras.optimizers.Lamb``.

    Raises:
      TypeError: One of the two lists of parts of paths is a single text.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        decay_in_ratio: bool = True,
        exclude_from_layer_adaptation: Sequence[str] = (),
        exclude_from_decay: Sequence[str] = (),
        **kwargs: Any,
    ):
        super().__init__(learning_rate, **kwargs)
        self.decay_in_ratio = decay_in_ratio
        self.exclude_from_layer_adaptation = _parts(
            "exclude_from_layer_adaptation", exclude_from_layer_adaptation
        )
        self.exclude_from_decay = _parts("exclude_from_decay", exclude_from_decay)

    def _apply_weight_decay(self, variables: Any) -> None:
        if not self.decay_in_ratio:
            super()._apply_weight_decay(variables)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        dtype = variable.dtype
        index = self._get_variable_index(variable)
        m, v = self._momentums[index], self._velocities[index]
        gradient = ops.cast(gradient, dtype)
        step = ops.cast(self.iterations + 1, dtype)
        self.assign_add(m, (gradient - m) * (1 - self.beta_1))
        self.assign_add(v, (ops.square(gradient) - v) * (1 - self.beta_2))
        m_hat = m / (1 - ops.power(ops.cast(self.beta_1, dtype), step))
        v_hat = v / (1 - ops.power(ops.cast(self.beta_2, dtype), step))
        direction = m_hat / (ops.sqrt(v_hat) + self.epsilon)
        reference = self._trainable_variables[index]
        if self.decay_in_ratio and self.weight_decay and self._use_weight_decay(variable):
            direction = direction + self.weight_decay * variable
        ratio = self._trust_ratio(reference, variable, direction)
        rate = ops.cast(self._own_rate(variable, learning_rate), dtype)
        self.assign_sub(variable, ratio * rate * direction)

    def _use_weight_decay(self, variable: Any) -> bool:
        reference = self._trainable_variables[self._get_variable_index(variable)]
        excluded = any(part in reference.path for part in self.exclude_from_decay)
        return not excluded and super()._use_weight_decay(variable)

    def _trust_ratio(self, reference: Any, variable: Any, direction: Any) -> Any:
        if any(part in reference.path for part in self.exclude_from_layer_adaptation):
            return 1.0
        weight_norm = ops.sqrt(ops.sum(ops.square(variable)))
        step_norm = ops.sqrt(ops.sum(ops.square(direction)))
        both = ops.logical_and(weight_norm > 0, step_norm > 0)
        return ops.where(both, weight_norm / ops.where(both, step_norm, 1.0), 1.0)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "decay_in_ratio": self.decay_in_ratio,
            "exclude_from_layer_adaptation": list(self.exclude_from_layer_adaptation),
            "exclude_from_decay": list(self.exclude_from_decay),
        }


def _parts(name: str, parts: Sequence[str]) -> tuple[str, ...]:
    """The parts of paths; of a single text every letter would be one."""
    if isinstance(parts, str):
        raise TypeError(
            f"DPLAMB: {name} must be a list of parts of variable paths, got {parts!r}: "
            f"write [{parts!r}]."
        )
    return tuple(parts)
