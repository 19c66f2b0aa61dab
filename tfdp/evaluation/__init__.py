"""What a trained model is worth: held-out caption loss, few-shot probes, and figures to look at."""

from tfdp.evaluation.caption_loss import CaptionLoss, caption_loss
from tfdp.evaluation.features import extract_features
from tfdp.evaluation.figures import plot_training_curve, save_caption_sheet
from tfdp.evaluation.likelier import times_likelier
from tfdp.evaluation.probe import ProbeResult, few_shot_probe
from tfdp.evaluation.unigram import unigram_log_probabilities, unigram_loss

__all__ = [
    "CaptionLoss",
    "ProbeResult",
    "caption_loss",
    "extract_features",
    "few_shot_probe",
    "plot_training_curve",
    "save_caption_sheet",
    "times_likelier",
    "unigram_log_probabilities",
    "unigram_loss",
]
