"""Models: the private captioner."""

from tfdp.models.captioner import Captioner
from tfdp.models.config import DPCAP_SIZES, PAD_ID, CaptionerConfig

__all__ = ["DPCAP_SIZES", "PAD_ID", "Captioner", "CaptionerConfig"]
