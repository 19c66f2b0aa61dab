"""What a trained model is worth: features, few-shot probes, and figures to look at."""

from tfdp.evaluation.features import extract_features
from tfdp.evaluation.figures import plot_training_curve, save_caption_sheet
from tfdp.evaluation.probe import ProbeResult, few_shot_probe

__all__ = [
    "ProbeResult",
    "extract_features",
    "few_shot_probe",
    "plot_training_curve",
    "save_caption_sheet",
]
