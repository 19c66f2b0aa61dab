"""Training Keras models with differential privacy."""

from tfdp.training.model import DPModel, make_private
from tfdp.training.strategies import STRATEGIES, choose_strategy, is_first_worker

__all__ = ["STRATEGIES", "DPModel", "choose_strategy", "is_first_worker", "make_private"]
