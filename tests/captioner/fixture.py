"""The reference's small model and its numbers, ready for comparison with ours."""

import functools
import json
from pathlib import Path

import keras
import numpy as np

from tfdp.captioner import Captioner, CaptionerConfig, dpcap_sources, load_dpcap_weights
from tfdp.captioner.dpcap_weights import Source
from tfdp.captioner.layers import image_positions, text_positions

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "dpcap"
WEIGHTS = FIXTURES / "dpcap_nano.npz"


@functools.cache
def load_io() -> dict[str, np.ndarray]:
    """The inputs and expected outputs, by the names in the fixture's file."""
    with np.load(FIXTURES / "dpcap_nano_io.npz") as arrays:
        return {name: arrays[name] for name in arrays.files}


def fixture_config() -> CaptionerConfig:
    """The reference's small configuration as ours."""
    settings = json.loads(str(load_io()["config_json"]))
    return CaptionerConfig(
        image_size=settings["img_size"],
        patch_size=settings["patch_size"],
        encoder_width=settings["embed_dim"],
        encoder_depth=settings["depth"],
        encoder_heads=settings["num_heads"],
        decoder_width=settings["decoder_embed_dim"],
        decoder_depth=settings["decoder_depth"],
        decoder_heads=settings["decoder_num_heads"],
        vocab_size=settings["vocab_size"],
        max_length=settings["text_max_length"],
        mlp_ratio=settings["mlp_ratio"],
    )


def build_fixture_model(exact_positions: bool = False, dtype: str = "float32") -> Captioner:
    """A captioner with the reference's weights.

    Args:
        exact_positions: use the exact sine-cosine tables (the `exactpos/*` numbers) where the
            checkpoint holds noisy ones.
        dtype: the model's dtype policy.
    """
    model = Captioner(fixture_config(), dtype=dtype)
    load_dpcap_weights(model, WEIGHTS)
    if exact_positions:
        config, weights = model.config, variables_by_path(model)
        side = config.image_size // config.patch_size
        for path, table in {
            "encoder/positions/positions": image_positions(side, config.encoder_width),
            "memory_positions/positions": image_positions(side, config.decoder_width),
            "decoder/positions/positions": text_positions(config.max_length, config.decoder_width),
        }.items():
            weights[path].assign(table)
    return model


def variables_by_path(model: Captioner) -> dict[str, keras.Variable]:
    """The model's weights by their paths, without the model's own name."""
    return {weight.path.split("/", 1)[1]: weight for weight in model.weights}


def name_map() -> dict[str, Source]:
    """Trained tensors in the order of `param_names`, and where they are in the captioner.

    `name_map()[name].path` is a key of `variables_by_path`; `name_map()[name].to_keras` turns a
    tensor or gradient of the reference into our layout. Fused tensors are fused in both.
    """
    sources = dpcap_sources(fixture_config())
    return {name: sources[name] for name in load_io()["param_names"].tolist()}


def inputs_and_targets() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The model's inputs for teacher forcing, and the target ids, all five examples."""
    io = load_io()
    ids = io["token_ids"].astype(np.int32)
    return {"image": io["images"], "tokens": ids[:, :-1]}, ids[:, 1:]


def example_losses(logits, targets: np.ndarray):
    """Mean cross-entropy over each caption's real targets, [B], through Keras's own loss."""
    loss = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, ignore_class=0, reduction="none", dtype=logits.dtype
    )
    token_nll = loss(targets, logits)  # [B, T], 0 at padding
    return token_nll, keras.ops.sum(token_nll, axis=-1) / (targets != 0).sum(axis=-1)


def per_example_gradients(model: Captioner) -> list[dict[str, np.ndarray]]:
    """Each example's gradient by a plain tape, one example at a time, by variable path."""
    import tensorflow as tf

    inputs, targets = inputs_and_targets()
    paths = [v.path.split("/", 1)[1] for v in model.trainable_variables]

    @tf.function
    def gradient(image, tokens, target, count):
        with tf.GradientTape() as tape:
            logits = model({"image": image, "tokens": tokens})
            nll = keras.losses.SparseCategoricalCrossentropy(
                from_logits=True, ignore_class=0, reduction="sum", dtype=logits.dtype
            )(target, logits)
            loss = nll / tf.cast(count, nll.dtype)
        variables = [v.value for v in model.trainable_variables]
        return [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]

    return [
        dict(
            zip(
                paths,
                [
                    g.numpy()
                    for g in gradient(
                        tf.constant(inputs["image"][i : i + 1]),
                        tf.constant(inputs["tokens"][i : i + 1]),
                        tf.constant(targets[i : i + 1]),
                        tf.constant(int((targets[i] != 0).sum())),
                    )
                ],
                strict=True,
            )
        )
        for i in range(len(targets))
    ]


def zero_shot_captions() -> np.ndarray:
    """Prompt, label and end id for every label, int32 [4, L], filled up with 0."""
    io = load_io()
    captions = np.zeros((len(io["label_ids"]), len(io["prompt_ids"]) + 4), np.int32)
    for row, label, length in zip(captions, io["label_ids"], io["label_lens"], strict=True):
        text = [*io["prompt_ids"], *label[:length], fixture_config().end_id]
        row[: len(text)] = text
    return captions
