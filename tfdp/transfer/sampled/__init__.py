"""Private training on sampled batches: heads of features, and backbones or parts of them."""

from tfdp.transfer.sampled.fine_tune import FineTune, classifier
from tfdp.transfer.sampled.fitting import TrainedClassifier, fit_sampled
from tfdp.transfer.sampled.head import SampledHead
from tfdp.transfer.sampled.parts import PARTS, train_only
from tfdp.transfer.sampled.pictures import Pictures

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
    "train_only",
]
