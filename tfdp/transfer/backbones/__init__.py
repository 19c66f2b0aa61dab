"""Public networks that turn pictures into features."""

from tfdp.transfer.backbones.backbone import Backbone, BackboneError
from tfdp.transfer.backbones.efficientnet_lite import efficientnet_lite, load_efficientnet_lite
from tfdp.transfer.backbones.named_backbones import load_backbone

__all__ = [
    "Backbone",
    "BackboneError",
    "efficientnet_lite",
    "load_backbone",
    "load_efficientnet_lite",
]
