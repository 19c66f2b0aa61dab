"""What a trained captioner is worth: held-out losses, probes, and figures of its run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfdp.captioner.caption_loss import caption_loss, times_likelier, unigram_loss
from tfdp.captioner.caption_sheet import save_caption_sheet
from tfdp.captioner.captioner import Captioner
from tfdp.captioner.icons import public_captions
from tfdp.captioner.image_text import ImageTextSource
from tfdp.captioner.run_setup import CaptionData
from tfdp.evaluation import extract_features, few_shot_probe, plot_training_curve

_SHEET = 32  # pictures on the caption sheet


def held_out_losses(model: Captioner, data: CaptionData, batch_size: int) -> dict[str, Any]:
    """Held-out losses in nats per token, and what they are without pictures or without training.

    They are the captioner's, the same beside other pictures, and that of public word frequencies:
    averaged within captions first, as in the curves of training, and over all tokens.
    """
    public = data.tokenizer(public_captions(), data.test.max_length)[:, 1:]
    losses = {
        "captioner": caption_loss(model, data.test, batch_size=batch_size),
        "captioner_other_pictures": caption_loss(
            model, data.test, batch_size=batch_size, other_pictures=True
        ),
        "public_unigram": unigram_loss(
            [public], data.tokenizer.vocabulary_size, data.test, batch_size=batch_size
        ),
    }
    return {name: loss.to_dict() for name, loss in losses.items()}


def few_shot_accuracies(
    model: Captioner,
    untrained: Captioner,
    data: CaptionData,
    *,
    shots: Sequence[int],
    draws: int,
    examples: int,
    batch_size: int,
) -> dict[str, Any]:
    """The same probe on the encoder, on an untrained one, and on raw pixels.

    Args:
        model: The trained captioner.
        untrained: One of the same settings with new weights.
        data: Where the first `examples` of both splits are taken from.
        shots: Labeled examples of a category; no probe is made for none.
        draws: Random draws of the labeled examples for each shot.
        examples: How many examples of each split are looked at.
        batch_size: Examples in a forward pass.

    Returns:
        Accuracies by view and shot; {} for no shots.
    """
    if not shots:
        return {}
    views = {
        "encoder": lambda x: model.features(x["image"]),
        "random_encoder": lambda x: untrained.features(x["image"]),
        "pixels": lambda x: x["image"],
    }
    results = {}
    for name, view in views.items():
        train, train_labels = _labeled(view, data.train, examples, batch_size)
        test, test_labels = _labeled(view, data.test, examples, batch_size)
        known = np.isin(test_labels, np.unique(train_labels))
        probes = few_shot_probe(
            train, train_labels, test[known], test_labels[known], shots=tuple(shots), draws=draws
        )
        results[name] = {f"{shot}_shot": probe.to_dict() for shot, probe in probes.items()}
    return results


def _labeled(
    view: Callable[[Any], Any], source: ImageTextSource, examples: int, batch_size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Features and categories of the first examples that have one."""
    features, kept = extract_features(view, source, batch_size=batch_size, limit=examples)
    labels = source.labels(kept.tolist())
    return features[labels >= 0], labels[labels >= 0]


def draw_figures(
    model: Captioner,
    data: CaptionData,
    folder: Path,
    history: Sequence[Mapping[str, Any]],
    losses: Mapping[str, Any],
    delta: float | None,
) -> None:
    """Draws the training curve with epsilon, and held-out pictures with their captions.

    Args:
        model: The trained captioner.
        data: Its pictures and captions.
        folder: Where the PNG files go.
        history: Entries of a `TrainingLog`.
        losses: What `held_out_losses` returned.
        delta: That of the guarantee.
    """
    held_out = [entry for entry in history if "val_loss" in entry]
    plot_training_curve(
        folder / "training_curve.png",
        [entry["step"] for entry in history],
        [entry["loss"] for entry in history],
        [entry["epsilon"] for entry in history],
        delta=delta,
        held_out=([e["step"] for e in held_out], [e["val_loss"] for e in held_out]),
        references={"public word frequencies": losses["public_unigram"]["per_caption"]},
        loss_label="loss (nats per token, mean over captions)",
    )
    rows = np.linspace(0, len(data.test) - 1, _SHEET).astype(int).tolist()
    images, captions = data.test.images(rows), data.test.captions(rows)
    save_caption_sheet(
        folder / "captions.png",
        data.test.pictures(rows),
        captions,
        data.tokenizer.detokenize(np.asarray(model.generate(images))),
        times_likelier(model, images, data.tokenizer(captions, data.test.max_length)).tolist(),
    )


def held_out_text(losses: Mapping[str, Any]) -> str:
    """One line on what the captioner has learned, from `held_out_losses`."""
    own, other, public = (
        losses[name]["per_token"]
        for name in ("captioner", "captioner_other_pictures", "public_unigram")
    )
    return (
        f"Held-out captions: {own:.3f} nats per token; {other:.3f} beside other pictures than "
        f"their own, {public:.3f} by public word frequencies"
    )
