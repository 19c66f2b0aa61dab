"""What a trained model is worth: features, few-shot probes, and the training curve."""

from tfdp.evaluation.features import extract_features
from tfdp.evaluation.few_shot import ProbeResult, few_shot_probe
from tfdp.evaluation.training_curve import plot_training_curve

__all__ = ["ProbeResult", "extract_features", "few_shot_probe", "plot_training_curve"]
