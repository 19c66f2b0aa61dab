"""Private training on sampled batches: heads of features, and backbones or parts of them."""

from tfdp.transfer.fine_tuning.fine_tune import PARTS, FineTune, Pictures, classifier, train_only
from tfdp.transfer.fine_tuning.sampled_head import (
    SampledHead,
    TrainedClassifier,
    fit_sampled,
    plan_for,
)

#: Settings of private training, by the names that configs use.
SAMPLED: dict[str, type[SampledHead]] = {"sampled_head": SampledHead, "fine_tune": FineTune}

__all__ = [
    "PARTS",
    "SAMPLED",
    "FineTune",
    "Pictures",
    "SampledHead",
    "TrainedClassifier",
    "classifier",
    "fit_sampled",
    "plan_for",
    "train_only",
]
