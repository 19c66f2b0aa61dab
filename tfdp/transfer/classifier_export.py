"""Classifiers as SavedModels: picture files (or features) to classes, with the privacy report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tfdp.export import export_with_report
from tfdp.export.bundle import new_bundle
from tfdp.export.encoded_pictures import decode_each, decode_picture
from tfdp.transfer.backbones import Backbone

_IMAGE_BYTES = tf.TensorSpec([None], tf.string, name="image_bytes")


def export_head(model: keras.Model, path: str | Path, privacy_report: Mapping[str, Any]) -> Path:
    """Writes a Keras classifier as a SavedModel, with its report and without private counts.

    Args:
        model: For instance `LastLayer.to_keras(...)`.
        path: The folder; a SavedModel that is there is replaced.
        privacy_report: Of the run that made the weights.

    Raises:
        FileExistsError: `path` exists and is not a SavedModel.
    """
    return export_with_report(model, path, released(privacy_report))


def check_backbone(backbone: object, dim: int) -> None:
    """Rejects what cannot have made a head's features.

    Args:
        backbone: To be exported before the head.
        dim: D, the features that the head takes.

    Raises:
        TypeError: It is neither a `Backbone` nor a Keras model.
        ValueError: It makes features of another width.
    """
    if isinstance(backbone, Backbone):
        width = backbone.row_of_black().shape[-1]
    elif isinstance(backbone, keras.Model):
        width = backbone.outputs[0].shape[-1]
    else:
        raise TypeError(
            "backbone must be what tfdp.transfer.load_backbone(name) gives, a Keras model, or None "
            f"for a classifier of features; got {backbone!r}."
        )
    if width != dim:
        raise ValueError(
            f"the backbone makes {width} features, but this head takes {dim}: pass the backbone "
            "that made the features which the head was fitted on."
        )


def export_classifier(
    logits: Callable[[tf.Tensor], tf.Tensor],
    parts: Sequence[Any],
    image_size: int,
    path: str | Path,
    privacy_report: Mapping[str, Any],
    class_names: Sequence[str],
) -> Path:
    """Writes a classifier of pictures as one SavedModel that needs TensorFlow alone.

    Signatures:

    - `serve` and `serving_default`: from `image_bytes`, string `[B]` (PNG, JPEG, WebP, GIF or BMP
      files), `probabilities` float32 `[B, K]`, `label` int32 `[B]`, `class_name` string `[B]`
      and `valid` bool `[B]`. A picture that cannot be decoded has `valid` False, zeros, and an
      empty name; the others of its batch are classified.
    - `pictures`: the same, without `valid`, from float32 `[B, S, S, 3]`, RGB in 0..255.

    Args:
        logits: Maps pictures float32 `[B, S, S, 3]`, RGB in 0..255, to logits `[B, K]`.
        parts: What holds its weights: Keras models and loaded SavedModels.
        image_size: S, in pixels.
        path: The folder; a SavedModel that is there is replaced.
        privacy_report: Of the run that made the weights; its private counts are left out.
        class_names: K names.

    Raises:
        FileExistsError: `path` exists and is not a SavedModel.
    """
    names = tf.constant(list(class_names))
    pixels = tf.TensorSpec([None, image_size, image_size, 3], tf.float32, name="pictures")

    def answer(pictures: tf.Tensor) -> dict[str, tf.Tensor]:
        # Some networks fail on an empty batch: it gets a black picture, whose answer is cut off.
        count = tf.shape(pictures)[0]
        some = tf.pad(pictures, [[0, tf.cast(count == 0, tf.int32)], [0, 0], [0, 0], [0, 0]])
        some = tf.ensure_shape(some, pixels.shape)
        probabilities = tf.nn.softmax(logits(some))[:count]
        label = tf.argmax(probabilities, axis=1, output_type=tf.int32)
        return {
            "probabilities": probabilities,
            "label": label,
            "class_name": tf.gather(names, label),
        }

    def serve(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        pictures, valid = decode_each(
            lambda data: decode_picture(data, image_size), image_bytes, image_size
        )
        found = answer(pictures)
        return {
            "probabilities": tf.where(valid[:, None], found["probabilities"], 0.0),
            "label": tf.where(valid, found["label"], 0),
            "class_name": tf.where(valid, found["class_name"], ""),
            "valid": valid,
        }

    bundle = tf.Module()
    bundle.parts = [_resources(part) for part in parts]
    bundle.names = names
    bundle.serve = _endpoint(serve, _IMAGE_BYTES)
    bundle.pictures = _endpoint(answer, pixels)
    signatures = {
        "serving_default": bundle.serve,
        "serve": bundle.serve,
        "pictures": bundle.pictures,
    }
    with new_bundle(path, released(privacy_report)) as folder:
        tf.saved_model.save(bundle, folder, signatures=signatures)
    return Path(path)


def released(privacy_report: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the report without counts, which are exact facts about private examples."""
    return {key: value for key, value in privacy_report.items() if key != "counts"}


def _endpoint(call: Callable[[tf.Tensor], Any], spec: tf.TensorSpec) -> Any:
    return tf.function(call, input_signature=[spec], autograph=False)


def _resources(part: Any) -> Any:
    """Returns what a bundle has to reference, so that a part's weights are saved with it."""
    return [v.value for v in part.variables] if isinstance(part, keras.Model) else part
