"""The captioner: pictures in, captions out."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from tfdp.captioner import generation, scoring
from tfdp.captioner.config import CaptionerConfig
from tfdp.captioner.decoder import TextDecoder
from tfdp.captioner.encoder import ImageEncoder
from tfdp.captioner.frozen import PositionAndType
from tfdp.captioner.inputs import checked_ids, checked_images
from tfdp.captioner.positions import image_positions


@keras.saving.register_keras_serializable(package="tfdp")
class Captioner(keras.Model):
    """A vision transformer and a text decoder with cross-attention (DP-Cap, arXiv 2403.02506).

    All trained weights sit in Dense, Embedding and LayerNormalization layers. Position tables,
    class token and type vectors are fixed. The weights exist as soon as the object does.

    Train it with `keras.losses.SparseCategoricalCrossentropy(from_logits=True,
    ignore_class=0)` on the caption shifted by one: inputs `ids[:, :-1]`, targets `ids[:, 1:]`.

    Args:
        config: the settings; None means DP-Cap Base.
        **kwargs: `name` and `dtype` of a Keras model.
    """

    def __init__(self, config: CaptionerConfig | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        config = CaptionerConfig() if config is None else config
        if not isinstance(config, CaptionerConfig):
            raise TypeError(f"config must be a CaptionerConfig, got {type(config).__name__}.")
        policy = self.dtype_policy
        self.config = config
        self.encoder = ImageEncoder(config, dtype=policy, name="encoder")
        self.bridge = keras.layers.Dense(config.decoder_width, dtype=policy, name="bridge")
        table = image_positions(config.image_size // config.patch_size, config.decoder_width)
        self.memory_positions = PositionAndType(table, dtype=policy, name="memory_positions")
        self.decoder = TextDecoder(config, dtype=policy, name="decoder")
        self.build({name: spec.shape for name, spec in self.input_signature.items()})

    def build(self, input_shape: Any) -> None:
        if self.built:
            return
        width, tokens = self.config.decoder_width, self.config.num_image_tokens
        self.encoder.build(input_shape["image"])
        self.bridge.build((None, tokens, self.config.encoder_width))
        self.memory_positions.build((None, tokens, width))
        self.decoder.build(input_shape["tokens"])

    def call(self, inputs: dict[str, Any]) -> Any:
        """Teacher forcing: the logits of every caption's next tokens.

        Args:
            inputs: "image", float [B, S, S, 3], normalised as in training, and "tokens",
                int [B, T], the ids that come before each target; T is at most `max_length`.

        Returns:
            Logits [B, T, V]; position t predicts the token after `tokens[:, t]`.

        Raises:
            ValueError: a part is missing or has the wrong shape or type.
        """
        if not isinstance(inputs, dict) or not {"image", "tokens"} <= inputs.keys():
            raise ValueError('A Captioner takes a dictionary with "image" and "tokens".')
        tokens = checked_ids("tokens", inputs["tokens"], (2,), self.config.max_length)
        return self.decoder(tokens, self.encode(inputs["image"]))

    def encode(self, images: Any) -> Any:
        """The tokens that the decoder looks at.

        Args:
            images: float [B, S, S, 3], normalised as in training.

        Returns:
            [B, N, D]: the class token and the patches, in the decoder's width.

        Raises:
            ValueError: the pictures have another size, or hold raw bytes.
        """
        images = ops.cast(checked_images(images, self.config.image_size), self.compute_dtype)
        return self.memory_positions(self.bridge(self.encoder(images)))

    def features(self, images: Any) -> Any:
        """One vector for each picture, the mean of its memory tokens: [B, D]."""
        return ops.mean(self.encode(images), axis=1)

    def generate(
        self,
        images: Any,
        max_length: int | None = None,
        beam_width: int = 1,
        prompt: Any = None,
    ) -> Any:
        """Writes a caption for each picture; see `tfdp.captioner.generation.generate`."""
        return generation.generate(self, images, max_length, beam_width, prompt)

    def score_captions(self, images: Any, token_ids: Any, chunk_size: int = 128) -> Any:
        """Scores captions against pictures; see `tfdp.captioner.scoring.score_captions`."""
        return scoring.score_captions(self, images, token_ids, chunk_size)

    @property
    def input_signature(self) -> dict[str, keras.InputSpec]:
        """Names, shapes and types of the inputs; only the batch is of unknown size."""
        size, length = self.config.image_size, self.config.max_length - 1
        return {
            "image": keras.InputSpec("float32", (None, size, size, 3), name="image"),
            "tokens": keras.InputSpec("int32", (None, length), name="tokens"),
        }

    @property
    def _default_save_signature(self) -> Any:
        # TensorFlow traces this when it saves the model or anything that holds it. Keras's own
        # takes every input for a float one, and token ids are integers.
        specs = {
            name: tf.TensorSpec(spec.shape, spec.dtype, name)
            for name, spec in self.input_signature.items()
        }
        return tf.function(lambda inputs: self(inputs), input_signature=[specs])

    def export(self, filepath: str, *args: Any, **kwargs: Any) -> None:
        """`keras.Model.export`, which needs no earlier call of the model here."""
        kwargs.setdefault("input_signature", [self.input_signature])
        super().export(filepath, *args, **kwargs)

    def get_config(self) -> dict[str, Any]:
        """The settings, for Keras's serialisation."""
        return {
            **super().get_config(),
            "config": keras.saving.serialize_keras_object(self.config),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Captioner:
        """The inverse of `get_config`; the weights are new ones."""
        settings = keras.saving.deserialize_keras_object(config["config"], custom_objects)
        return cls(**{**config, "config": settings})
