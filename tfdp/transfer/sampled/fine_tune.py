"""Private fine-tuning of a backbone with its head, or of parts of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras

from tfdp import checks
from tfdp.data import ExampleSource
from tfdp.transfer.backbones import Backbone, BackboneError
from tfdp.transfer.backbones.base import pooled
from tfdp.transfer.normalise import FeatureNormalisation
from tfdp.transfer.sampled.head import HEAD, SampledHead
from tfdp.transfer.sampled.parts import PARTS, train_only
from tfdp.transfer.sampled.pictures import Pictures


@dataclasses.dataclass(frozen=True)
class FineTune(SampledHead):
    """Settings of private training from pictures.

    The head begins with small random weights and not with zeros, which LAMB could leave only at
    the pace of its first step. It learns at `learning_rate`; what is trained in the backbone, which
    is good as it is, at a part of that.

    Attributes:
        backbone_rate: learning rate of the backbone, in units of the head's.
        part: what is trained besides the head; see `train_only`.
        rank: of "lora".
        layers: of "last_block".
        backbone: makes the backbone anew for each run, from its public weights.
    """

    batch_size: int = 1024
    epochs: float = 3.0
    learning_rate: float = 0.1
    rate_schedule: str = "cosine"
    init: float = 0.03
    microbatch_size: int | None = 64
    backbone_rate: float = 0.1
    part: str = "bias"
    rank: int = 4
    layers: int = 4
    backbone: Callable[[], Backbone] | None = None

    def model(self, rows: Any, num_classes: int, seed: int | None) -> keras.Model:
        """A model of pictures `[B, S, S, 3]` that gives logits `[B, K]`."""
        if self.backbone is None:
            raise ValueError("fine_tune needs a backbone: the config names it in its `backbone`.")
        return classifier(self.backbone(), num_classes, self, seed)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.one_of("part", self.part, PARTS)
        checks.positive("backbone_rate", self.backbone_rate)
        checks.positive_int("rank", self.rank)
        checks.positive_int("layers", self.layers)

    def _rates(self) -> tuple[float, dict[str, float]]:
        """The backbone's learning rate, of which the head has a multiple."""
        return self.learning_rate * self.backbone_rate, {f"{HEAD}/": 1 / self.backbone_rate}

    def source(self, rows: Any) -> ExampleSource:
        """The pictures as records to sample from."""
        self.check_rows(rows)
        return rows.source()

    def check_rows(self, rows: Any) -> None:
        """Refuses what are no pictures."""
        if not isinstance(rows, Pictures):
            raise TypeError("fine_tune learns from pictures: the config names them in `pictures`.")


def classifier(
    backbone: Backbone, num_classes: int, settings: FineTune, seed: int | None = None
) -> keras.Model:
    """Backbone and new head as one Keras model of RGB pictures in 0..255.

    Args:
        backbone: its network must be a Keras model. What is not trained is frozen in it.
        num_classes: K.
        settings: what is trained, and how the head begins.
        seed: of the head's first weights.

    Raises:
        BackboneError: the network is not a Keras model, so that its weights cannot be trained.
        ValueError: it has nothing of the part that is to be trained.
    """
    network = backbone.network
    if not isinstance(network, keras.Model):
        raise BackboneError(
            f"backbone {backbone.name!r} is no Keras model, so it cannot be fine-tuned; choose "
            "another, or train a head of its features."
        )
    train_only(network, settings.part, rank=settings.rank, layers=settings.layers)
    size = backbone.image_size
    pictures = keras.Input((size, size, 3), name="pictures")
    features = pooled(network(backbone.preprocess(pictures), training=False))
    features = FeatureNormalisation(settings.normalise, name="normalise")(features)
    logits = settings.output_layer(num_classes, seed)(features)
    return keras.Model(pictures, logits, name="classifier")
