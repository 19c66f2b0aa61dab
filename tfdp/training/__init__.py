"""Training Keras models with differential privacy."""

from tfdp.training.callbacks import ProgressBar, StopOnTerm, TrainingLog
from tfdp.training.checkpoints import CheckpointEvery
from tfdp.training.model import DPModel, make_private
from tfdp.training.strategies import STRATEGIES, choose_strategy, is_first_worker

__all__ = [
    "STRATEGIES",
    "CheckpointEvery",
    "DPModel",
    "ProgressBar",
    "StopOnTerm",
    "TrainingLog",
    "choose_strategy",
    "is_first_worker",
    "make_private",
]
