"""The private captioner: its model, its data, its losses, its checkpoints and its SavedModel."""

from tfdp.captioner.caption_loss import (
    CaptionLoss,
    caption_loss,
    times_likelier,
    unigram_log_probabilities,
    unigram_loss,
)
from tfdp.captioner.caption_sheet import save_caption_sheet
from tfdp.captioner.captioner import Captioner
from tfdp.captioner.captioner_config import DPCAP_SIZES, PAD_ID, CaptionerConfig
from tfdp.captioner.dpcap_weights import (
    dpcap_sources,
    load_dpcap_weights,
    read_tensors,
    set_dpcap_weights,
)
from tfdp.captioner.icons import icons_manifest, icons_tokenizer, load_icons, public_captions
from tfdp.captioner.image_text import ImageTextSource
from tfdp.captioner.model_size import (
    count_parameters,
    estimate_activation_bytes_per_example,
    estimate_flops_per_example,
)
from tfdp.captioner.pairs import Pair, read_manifest
from tfdp.captioner.saved_model import export_captioner
from tfdp.captioner.tokenizer import CaptionTokenizer
from tfdp.files.torch_file import CheckpointError

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
    "save_caption_sheet",
    "set_dpcap_weights",
    "times_likelier",
    "unigram_log_probabilities",
    "unigram_loss",
]
