"""The clip norm that follows a quantile of the gradient norms."""

from __future__ import annotations

import keras
import tensorflow as tf

from tfdp.privacy import PrivacyPlan, QuantileClipping

# How far the clip norm may go from where it starts: float32 and the noise stay meaningful.
_FURTHEST = 1e6


class AdaptiveClipNorm:
    """Moves the clip norm towards a quantile of the gradient norms (Andrew et al. 2021).

    Args:
      plan: A plan with quantile clipping.
      clip_norm: The optimizer's variable, which saving and checkpoints carry.
    """

    def __init__(self, plan: PrivacyPlan, clip_norm: keras.Variable):
        assert isinstance(plan.clipping, QuantileClipping)
        self._way, self._settings = plan.clipping, plan.settings
        self._start = plan.clip_norm
        self._batch_size = plan.denominator
        self._clip_norm = clip_norm

    @property
    def clip_norm(self) -> tf.Tensor:
        """The clip norm of the moment."""
        return tf.convert_to_tensor(self._clip_norm.value)

    @property
    def scale(self) -> tf.Tensor:
        """The clip norm of the moment in units of the one it started at."""
        return self.clip_norm / self._start

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation of the noise on the sum, in clip norms of the moment."""
        return self._settings.gradient_noise_multiplier

    def count(self, norms: tf.Tensor, used: tf.Tensor) -> tf.Tensor:
        """Adds up a half for every example under the clip norm and minus a half for the others.

        So that one example moves the count by a half only. Rows outside ``used`` add nothing.

        Args:
          norms: ``[B]`` gradient norms.
          used: ``[B]`` bool.
        """
        under = norms <= tf.cast(self.clip_norm, norms.dtype)
        return tf.reduce_sum(tf.where(used, tf.where(under, 0.5, -0.5), 0.0))

    def move(self, count: tf.Tensor, seed: tf.Tensor) -> None:
        """Releases the count with noise, and moves the clip norm by what it shows.

        Args:
          count: The sum of ``count`` over all examples of the update.
          seed: ``[2]`` int64, of noise that nothing else uses.
        """
        noise = self._settings.count_noise * tf.random.stateless_normal([], seed)
        share = (count + noise) / self._batch_size + 0.5
        factor = tf.exp(-self._way.learning_rate * (share - self._way.quantile))
        limits = self._start / _FURTHEST, self._start * _FURTHEST
        self._clip_norm.assign(tf.clip_by_value(self.clip_norm * factor, *limits))
