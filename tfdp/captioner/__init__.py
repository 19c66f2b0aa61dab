"""The private captioner: its model, its data, its losses, its checkpoints and its SavedModel."""

from tfdp.captioner.caption_loss import CaptionLoss, caption_loss
from tfdp.captioner.captioner import Captioner
from tfdp.captioner.checkpoints import load_dpcap_weights, read_tensors, set_dpcap_weights
from tfdp.captioner.config import DPCAP_SIZES, PAD_ID, CaptionerConfig
from tfdp.captioner.dpcap_names import dpcap_sources
from tfdp.captioner.icons import icons_manifest, icons_tokenizer, load_icons, public_captions
from tfdp.captioner.image_text import ImageTextSource
from tfdp.captioner.likelier import times_likelier
from tfdp.captioner.pair_records import Pair, read_manifest
from tfdp.captioner.saved_model import export_captioner
from tfdp.captioner.size import (
    count_parameters,
    estimate_activation_bytes_per_example,
    estimate_flops_per_example,
)
from tfdp.captioner.tokenizer import CaptionTokenizer
from tfdp.captioner.unigram import unigram_log_probabilities, unigram_loss
from tfdp.files.torch_pickle import CheckpointError

__all__ = [
    "DPCAP_SIZES",
    "PAD_ID",
    "CaptionLoss",
    "CaptionTokenizer",
    "Captioner",
    "CaptionerConfig",
    "CheckpointError",
    "ImageTextSource",
    "Pair",
    "caption_loss",
    "count_parameters",
    "dpcap_sources",
    "estimate_activation_bytes_per_example",
    "estimate_flops_per_example",
    "export_captioner",
    "icons_manifest",
    "icons_tokenizer",
    "load_dpcap_weights",
    "load_icons",
    "public_captions",
    "read_manifest",
    "read_tensors",
    "set_dpcap_weights",
    "times_likelier",
    "unigram_log_probabilities",
    "unigram_loss",
]
