"""Private fine-tuning of a backbone with its head, or of parts of it, from pictures."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp import checks
from tfdp.data import ExampleSource, IndexableSource
from tfdp.data.pictures import center_square
from tfdp.transfer.backbones import Backbone, BackboneError
from tfdp.transfer.backbones.backbone import pooled
from tfdp.transfer.features.picture_sets import PictureSet
from tfdp.transfer.fine_tuning.sampled_head import HEAD, SampledHead
from tfdp.transfer.linear_head import FeatureNormalization

_NORMS = (
    keras.layers.LayerNormalization,
    keras.layers.GroupNormalization,
    keras.layers.RMSNormalization,
)
_ADAPTED = (keras.layers.Dense, keras.layers.EinsumDense, keras.layers.Conv2D)
#: "none" leaves the backbone as it is and trains the head alone.
PARTS = ("none", "bias", "norm", "lora", "last_block", "all")


class Pictures:
    """Some pictures of a split, each a middle square of `size` pixels.

    Args:
        pictures: The split.
        size: Side in pixels.
        chosen: Indices into the split; all when None.
        stray: By how many pictures they may differ from the stated number; see `split`.
    """

    def __init__(
        self,
        pictures: PictureSet,
        size: int,
        chosen: np.ndarray | None = None,
        stray: float = 0.0,
    ) -> None:
        self._pictures, self._size = pictures, size
        self._chosen = np.arange(len(pictures)) if chosen is None else chosen
        self.num_classes = len(pictures.class_names)
        self.stray = stray

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns RGB in 0..255, float32 `[S, S, 3]`, and the label, int32."""
        own = int(self._chosen[index])
        square = center_square(self._pictures.picture(own), self._size)
        return square.astype(np.float32), np.asarray(self._pictures.label(own), np.int32)

    def subset(self, chosen: np.ndarray, stray: float = 0.0) -> Pictures:
        """Returns those where `chosen` `[N]` is true."""
        return Pictures(self._pictures, self._size, self._chosen[chosen], stray)

    def contents(self) -> Iterator[bytes]:
        """Yields bytes that depend on one picture alone, for every picture in order."""
        return (self._pictures.content(int(index)) for index in self._chosen)

    def source(self) -> ExampleSource:
        """Returns the pictures to sample from; those that cannot be read contribute nothing."""
        spec = (tf.TensorSpec([self._size, self._size, 3], tf.float32), tf.TensorSpec([], tf.int32))
        return IndexableSource(self, element_spec=spec)


@dataclasses.dataclass(frozen=True)
class FineTune(SampledHead):
    """Settings of private training from pictures.

    The head begins with small random weights, not with zeros, which LAMB could leave only at
    the pace of its first step. It learns at `learning_rate`; what is trained in the backbone
    learns at a part of that.

    Attributes:
        backbone_rate: Learning rate of the backbone, in units of the head's.
        part: What is trained besides the head; see `train_only`.
        rank: Of "lora".
        layers: Of "last_block".
        backbone: Makes the backbone anew for each run, from its public weights.
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

    def model(self, data: Any, num_classes: int, seed: int | None) -> keras.Model:
        """Returns a model of pictures `[B, S, S, 3]` that gives logits `[B, K]`."""
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
        """Returns the backbone's learning rate, of which the head has a multiple."""
        return self.learning_rate * self.backbone_rate, {f"{HEAD}/": 1 / self.backbone_rate}

    def source(self, data: Any) -> ExampleSource:
        """Returns the pictures to sample from."""
        self.check_data(data)
        return data.source()

    def check_data(self, data: Any) -> None:
        """Rejects what are not pictures."""
        if not isinstance(data, Pictures):
            raise TypeError("fine_tune learns from pictures: the config names them in `pictures`.")


def classifier(
    backbone: Backbone, num_classes: int, settings: FineTune, seed: int | None = None
) -> keras.Model:
    """Returns backbone and new head as one Keras model of RGB pictures in 0..255.

    Args:
        backbone: Its network must be a Keras model. What is not trained is frozen in it.
        num_classes: K.
        settings: What is trained, and how the head begins.
        seed: Of the head's first weights.

    Raises:
        BackboneError: The network is not a Keras model, so that its weights cannot be trained.
        ValueError: It has nothing of the part that is to be trained.
    """
    network = backbone.network
    if not isinstance(network, keras.Model):
        raise BackboneError(
            f"backbone {backbone.name!r} is not a Keras model, so it cannot be fine-tuned; choose "
            "another, or train a head of its features."
        )
    train_only(network, settings.part, rank=settings.rank, layers=settings.layers)
    size = backbone.image_size
    pictures = keras.Input((size, size, 3), name="pictures")
    features = pooled(network(backbone.preprocess(pictures), training=False))
    features = FeatureNormalization(settings.normalize, name="normalize")(features)
    logits = settings.output_layer(num_classes, seed)(features)
    return keras.Model(pictures, logits, name="classifier")


def train_only(network: keras.Model, part: str, *, rank: int = 4, layers: int = 4) -> None:
    """Freezes a backbone except for a part of it.

    Batch normalization always keeps its public statistics and weights: in training mode it would
    mix the examples of a batch.

    Args:
        network: A built model; it is changed.
        part: "none", "bias" (all biases, Ben Zaken et al. 2022), "norm" (scales and offsets of
            layer, group and RMS normalization), "lora" (low-rank additions to the kernels, Hu et
            al. 2022), "last_block" (the last layers that have weights) or "all".
        rank: Of the additions of "lora".
        layers: How many "last_block" means.

    Raises:
        ValueError: There is no such part, or this backbone has none.
    """
    if part not in PARTS:
        raise ValueError(f"part must be one of {', '.join(PARTS)}, got {part!r}.")
    if rank < 1 or layers < 1:
        raise ValueError(f"rank and layers must be at least 1, got {rank} and {layers}.")
    found = [layer for layer in _owners(network) if not _is_batch_norm(layer)]
    network.trainable = True
    for layer in _owners(network):
        if _is_batch_norm(layer):
            layer.trainable = False
    for variable in network.variables:
        variable.trainable = False
    for variable in _chosen(found, part, rank, layers):
        variable.trainable = True
    if part != "none" and not network.trainable_variables:
        raise ValueError(f"the backbone {network.name!r} has nothing to train for part={part!r}.")


def _owners(layer: keras.Layer) -> Iterator[keras.Layer]:
    """Yields layers with weights of their own, each before its parts, in the order of creation."""
    if _own(layer):
        yield layer
    inner = layer.layers if isinstance(layer, keras.Model) else _parts_of(layer)
    for child in inner:
        yield from _owners(child)


def _parts_of(layer: keras.Layer) -> list[keras.Layer]:
    return list(layer._flatten_layers(include_self=False, recursive=False))


def _chosen(
    found: list[keras.Layer], part: str, rank: int, layers: int
) -> Iterator[keras.Variable]:
    if part == "all":
        yield from (v for layer in found for v in _weights(layer))
    elif part == "bias":
        yield from (v for layer in found for v in _weights(layer) if v.name in ("bias", "beta"))
    elif part == "norm":
        yield from (v for layer in found if isinstance(layer, _NORMS) for v in _weights(layer))
    elif part == "last_block":
        yield from (v for layer in found[-layers:] for v in _weights(layer))
    elif part == "lora":
        for layer in found:
            if isinstance(layer, _ADAPTED) and not isinstance(layer, keras.layers.DepthwiseConv2D):
                layer.enable_lora(rank)
                yield from (layer.lora_kernel_a, layer.lora_kernel_b)


def _weights(layer: keras.Layer) -> list[keras.Variable]:
    """Returns its own weights, without the state of random number generators."""
    return [v for v in _own(layer) if "seed" not in v.path]


def _own(layer: keras.Layer) -> list[keras.Variable]:
    """Returns what it made itself, not its parts: `layer.variables` has both."""
    return [*layer._trainable_variables, *layer._non_trainable_variables]


def _is_batch_norm(layer: keras.Layer) -> bool:
    return isinstance(layer, keras.layers.BatchNormalization)
