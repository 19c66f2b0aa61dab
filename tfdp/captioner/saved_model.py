"""The captioner as a service: picture bytes to captions, and to features."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfdp.captioner.captioner import Captioner
from tfdp.captioner.image_text import checked_crop_share, pixel_statistics
from tfdp.captioner.tokenizer import CaptionTokenizer
from tfdp.export.bundle import new_bundle
from tfdp.export.encoded_pictures import decode_each, decode_picture

_IMAGE_BYTES = tf.TensorSpec([None], tf.string, name="image_bytes")
Answer = Callable[[tf.Tensor, tf.Tensor], dict[str, tf.Tensor]]


def export_captioner(
    model: Captioner,
    tokenizer: CaptionTokenizer,
    path: str | Path,
    privacy_report: Mapping[str, Any],
    *,
    normalization: str = "half",
    crop_share: float = 1.0,
    max_length: int | None = None,
    beam_width: int = 1,
) -> Path:
    """Writes a SavedModel that captions picture files in a process with TensorFlow alone.

    Signatures, each from `image_bytes`, string `[B]` (PNG, JPEG, WebP, GIF or BMP files):

    - `serve` and `serving_default`: `captions`, string `[B]`, and `valid`, bool `[B]`;
    - `features`: `features`, float32 `[B, D]`, and `valid`.

    A picture that cannot be decoded has `valid` False, an empty caption and zero features; the
    others of its batch are answered.

    Args:
        model: The trained captioner.
        tokenizer: The one it was trained with.
        path: The folder to write; a SavedModel that is already there is replaced.
        privacy_report: The report of the training run; `assets/privacy_report.json` of the bundle.
        normalization: That of the `ImageTextSource` of the training run.
        crop_share: Likewise.
        max_length: Longest caption in ids, start and end included; the model's own by default.
        beam_width: Captions kept at a time while searching; 1 is greedy search.

    Returns:
        The folder written.

    Raises:
        ValueError: If the tokenizer is not the model's, or an argument is out of range.
        FileExistsError: If `path` exists and is not a SavedModel.
    """
    _check_tokenizer(model, tokenizer)
    mean, deviation = pixel_statistics(normalization)
    crop_share = checked_crop_share(crop_share)
    size = model.config.image_size

    def endpoint(answer: Answer) -> tf.types.experimental.PolymorphicFunction:
        def call(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
            pixels, valid = decode_each(
                lambda data: decode_picture(data, size, crop_share), image_bytes, size
            )
            return answer((pixels - mean) / deviation, valid)

        return tf.function(call, input_signature=[_IMAGE_BYTES], autograph=False)

    def caption(images: tf.Tensor, valid: tf.Tensor) -> dict[str, tf.Tensor]:
        text = tokenizer.detokenize_in_graph(model.generate(images, max_length, beam_width))
        return {"captions": tf.where(valid, text, ""), "valid": valid}

    def features(images: tf.Tensor, valid: tf.Tensor) -> dict[str, tf.Tensor]:
        rows = tf.cast(model.features(images), tf.float32)
        return {"features": tf.where(valid[:, None], rows, 0.0), "valid": valid}

    bundle = tf.Module()
    bundle.weights = [variable.value for variable in model.variables]
    bundle.serve, bundle.features = endpoint(caption), endpoint(features)
    signatures = {
        "serving_default": bundle.serve,
        "serve": bundle.serve,
        "features": bundle.features,
    }
    with new_bundle(path, privacy_report) as folder:
        tf.saved_model.save(bundle, folder, signatures=signatures)
    return Path(path)


def _check_tokenizer(model: Captioner, tokenizer: CaptionTokenizer) -> None:
    ids = {
        "vocabulary size": (tokenizer.vocabulary_size, model.config.vocab_size),
        "start id": (tokenizer.start_id, model.config.start_id),
        "end id": (tokenizer.end_id, model.config.end_id),
    }
    for name, (given, expected) in ids.items():
        if given != expected:
            raise ValueError(
                f"tokenizer has {name} {given}, the model was built for {expected}: "
                "export with the tokenizer of the training run."
            )
