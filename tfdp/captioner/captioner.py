"""The captioner: pictures in, captions out."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from tfdp.captioner.captioner_config import CaptionerConfig
from tfdp.captioner.generation import checked_prompt, search
from tfdp.captioner.layers import PositionAndType, image_positions
from tfdp.captioner.scoring import check_targets, score
from tfdp.captioner.towers import ImageEncoder, TextDecoder


@keras.saving.register_keras_serializable(package="tfdp")
class Captioner(keras.Model):
    """A vision transformer and a text decoder with cross-attention (DP-Cap, arXiv 2403.02506).

    All trained weights sit in Dense, Embedding and LayerNormalization layers. Position tables,
    class token and type vectors are fixed. The weights exist as soon as the object does.

    Train it with `keras.losses.SparseCategoricalCrossentropy(from_logits=True,
    ignore_class=0)` on the caption shifted by one: inputs `ids[:, :-1]`, targets `ids[:, 1:]`.

    Args:
        config: The settings; None means DP-Cap Base.
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
            inputs: "image", float [B, S, S, 3], normalized as in training, and "tokens",
                int [B, T], the ids that come before each target; T is at most `max_length`.

        Returns:
            Logits [B, T, V]; position t predicts the token after `tokens[:, t]`.

        Raises:
            ValueError: A part is missing or has the wrong shape or type.
        """
        if not isinstance(inputs, dict) or not {"image", "tokens"} <= inputs.keys():
            raise ValueError('A Captioner takes a dictionary with "image" and "tokens".')
        tokens = checked_ids("tokens", inputs["tokens"], (2,), self.config.max_length)
        return self.decoder(tokens, self.encode(inputs["image"]))

    def encode(self, images: Any) -> Any:
        """The tokens that the decoder looks at.

        Args:
            images: float [B, S, S, 3], normalized as in training.

        Returns:
            [B, N, D]: the class token and the patches, in the decoder's width.

        Raises:
            ValueError: The pictures have another size, or hold raw bytes.
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
        """Writes a caption for each picture, which is encoded once.

        Greedy search takes the likeliest next token, over the whole vocabulary. Beam search keeps
        the `beam_width` likeliest captions; a caption that has ended keeps its score. Called
        eagerly it runs as one compiled graph; inside a `tf.function` it becomes part of that one.

        Args:
            images: float [B, S, S, 3], normalized as in training.
            max_length: Longest caption in ids, start and end included; at most the model's
                `max_length`, which is the default.
            beam_width: Captions kept at a time; 1 is greedy search.
            prompt: Ids that every caption begins with, the start id first; None means just that.

        Returns:
            int32 ids [B, max_length]: the prompt, the new tokens up to the end id, then padding.

        Raises:
            TypeError: An argument is of the wrong kind.
            ValueError: An argument is out of range.
        """
        length = self.config.max_length if max_length is None else max_length
        ids = checked_prompt(self.config, length, beam_width, prompt)
        return self._run_as_graph(
            ("generate", length, beam_width, ids),
            lambda x: search(self.decoder, self.encode(x), length, beam_width, ids),
            checked_images(images, self.config.image_size),
        )

    def score_captions(self, images: Any, token_ids: Any, pairs_at_once: int = 128) -> Any:
        """Mean negative log-likelihood, in nats per token, of captions given pictures.

        The mean runs over all ids after the first up to the last that is not padding, the end
        id included; the smallest score is the best caption. A picture is encoded once, however
        many captions it meets.

        Args:
            images: float [B, S, S, 3], normalized as in training.
            token_ids: int [C, L], captions that every picture meets, or int [B, C, L], each
                picture's own. They begin with the start id and are padded with 0.
            pairs_at_once: Pairs of a picture and a caption that are scored at a time, at least
                one caption for all pictures; it bounds the memory.

        Returns:
            [B, C] scores.

        Raises:
            ValueError: `token_ids` has another shape or type, or a caption has no target.
        """
        if pairs_at_once < 1:
            raise ValueError(f"pairs_at_once must be at least 1, got {pairs_at_once}.")
        images = checked_images(images, self.config.image_size)
        token_ids = checked_ids("token_ids", token_ids, (2, 3), self.config.max_length)
        if tf.executing_eagerly():
            check_targets(np.asarray(token_ids), self.config.vocab_size)
        if 0 in (images.shape[0], token_ids.shape[-2]):
            return ops.zeros((images.shape[0], token_ids.shape[-2]))
        return self._run_as_graph(
            ("score", pairs_at_once, len(token_ids.shape)),
            lambda x, ids: score(self.decoder, self.encode(x), ids, pairs_at_once),
            images,
            token_ids,
        )

    def _run_as_graph(self, key: Hashable, function: Callable[..., Any], *tensors: Any) -> Any:
        """Calls `function(*tensors)`, as one graph even where TensorFlow runs eagerly.

        Args:
            key: Tells the function and the Python values that it closes over from all others.
            function: Takes and returns tensors.
            *tensors: Its arguments.
        """
        if not tf.executing_eagerly():
            return function(*tensors)
        # Kept out of Keras's attribute tracking, which would try to save it with the model.
        graphs = self.__dict__.setdefault("_graphs", {})
        if key not in graphs:
            graphs[key] = tf.function(function, autograph=False, reduce_retracing=True)
        return graphs[key](*tensors)

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
        """The settings, for Keras's serialization."""
        return {
            **super().get_config(),
            "config": keras.saving.serialize_keras_object(self.config),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Captioner:
        """The inverse of `get_config`; the weights are new ones."""
        settings = keras.saving.deserialize_keras_object(config["config"], custom_objects)
        return cls(**{**config, "config": settings})


def checked_images(images: Any, size: int) -> Any:
    """The pictures as a tensor, checked while their shape is known.

    Raises:
        ValueError: They are not [B, size, size, 3], or hold raw bytes.
    """
    images = ops.convert_to_tensor(images)
    if len(images.shape) != 4 or tuple(images.shape[1:]) != (size, size, 3):
        raise ValueError(f"images must be [B, {size}, {size}, 3], got {tuple(images.shape)}.")
    if not keras.backend.is_float_dtype(keras.backend.standardize_dtype(images.dtype)):
        raise ValueError(
            f"images must be normalized floats, got {images.dtype}; divide by 255 and apply "
            "the mean and standard deviation of the training run."
        )
    return images


def checked_ids(name: str, ids: Any, ranks: tuple[int, ...], max_length: int) -> Any:
    """The token ids as an int32 tensor, checked while their shape is known.

    Raises:
        ValueError: They are not integers, have another number of axes than one of `ranks`,
            or are longer than `max_length`.
    """
    ids = ops.convert_to_tensor(ids)
    if not keras.backend.is_int_dtype(keras.backend.standardize_dtype(ids.dtype)):
        raise ValueError(f"{name} must be integer ids, got {ids.dtype}.")
    if len(ids.shape) not in ranks:
        wanted = " or ".join(str(rank) for rank in ranks)
        raise ValueError(f"{name} must have {wanted} axes, got shape {tuple(ids.shape)}.")
    if ids.shape[-1] is not None and ids.shape[-1] > max_length:
        raise ValueError(
            f"{name} are {ids.shape[-1]} ids long, the model's max_length is {max_length}; "
            "shorten the captions or build the model with a larger max_length."
        )
    return ops.cast(ids, "int32")
