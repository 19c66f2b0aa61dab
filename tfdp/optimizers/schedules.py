"""Learning-rate schedules of the reference runs, made of Keras's own."""

from __future__ import annotations

import keras

from tfdp import checks


def warmup_cosine(
    peak: float, warmup_steps: int, decay_steps: int
) -> keras.optimizers.schedules.LearningRateSchedule:
    """Linear warm-up to ``peak``, then half a cosine down to zero.

    The first step already moves the weights: it spends privacy, so a rate of zero would waste it.

    Args:
      peak: Highest learning rate.
      warmup_steps: Steps until the peak; 0 for none.
      decay_steps: Step at which the rate reaches zero, counted from the start.

    Raises:
      TypeError: An argument is of the wrong kind.
      ValueError: The rate is not positive, or the warm-up as long as the whole schedule.
    """
    checks.positive("peak", peak)
    for name, value in (("warmup_steps", warmup_steps), ("decay_steps", decay_steps)):
        checks.whole(name, value)
    if not 0 <= warmup_steps < decay_steps:
        raise ValueError(
            f"warmup_steps={warmup_steps} must lie between 0 and decay_steps={decay_steps}."
        )
    if warmup_steps == 0:
        return keras.optimizers.schedules.CosineDecay(peak, decay_steps)
    return keras.optimizers.schedules.CosineDecay(
        peak / (warmup_steps + 1),
        decay_steps - warmup_steps,
        warmup_target=peak,
        warmup_steps=warmup_steps,
    )
