"""Keras optimizers that accept only clipped and noised gradients."""

from tfdp.optimizers.keras_family import DPSGD, DPAdam, DPAdamW
from tfdp.optimizers.lamb import DPLAMB
from tfdp.optimizers.private import PrivateOptimizer, RawGradientsError
from tfdp.optimizers.schedules import warmup_cosine

__all__ = [
    "DPLAMB",
    "DPSGD",
    "DPAdam",
    "DPAdamW",
    "PrivateOptimizer",
    "RawGradientsError",
    "warmup_cosine",
]
