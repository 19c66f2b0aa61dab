"""Models: the private captioner, its sizes, and the checkpoints that fill it."""

from tfdp.models.captioner import Captioner
from tfdp.models.checkpoints import load_dpcap_weights, read_tensors, set_dpcap_weights
from tfdp.models.config import DPCAP_SIZES, PAD_ID, CaptionerConfig
from tfdp.models.dpcap_names import dpcap_sources
from tfdp.models.size import (
    count_parameters,
    estimate_activation_bytes_per_example,
    estimate_flops_per_example,
)
from tfdp.models.torch_file import read_torch_file
from tfdp.models.torch_pickle import CheckpointError

__all__ = [
    "DPCAP_SIZES",
    "PAD_ID",
    "Captioner",
    "CaptionerConfig",
    "CheckpointError",
    "count_parameters",
    "dpcap_sources",
    "estimate_activation_bytes_per_example",
    "estimate_flops_per_example",
    "load_dpcap_weights",
    "read_tensors",
    "read_torch_file",
    "set_dpcap_weights",
]
