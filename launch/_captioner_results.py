"""What a captioner run leaves behind once it has trained: report, metrics, figures, SavedModel."""

from __future__ import annotations

import json
from typing import Any

import keras
import ml_collections
import numpy as np
from absl import logging

from launch._captioner_setup import Data, make_model, public_data
from launch._workdir import Workdir
from tfdp.captioner import (
    ImageTextSource,
    caption_loss,
    export_captioner,
    public_captions,
    save_caption_sheet,
    times_likelier,
    unigram_loss,
)
from tfdp.evaluation import (
    extract_features,
    few_shot_probe,
    plot_training_curve,
)
from tfdp.files import write_whole
from tfdp.privacy import PrivacyReport
from tfdp.training import TrainingLog

_SHEET = 32  # pictures on the caption sheet


def write_all(
    model: keras.Model, config: ml_collections.ConfigDict, data: Data, workdir: Workdir
) -> tuple[PrivacyReport, dict[str, Any]]:
    """Writes everything into the workdir, and returns report and metrics.

    No training data are read but for the probes.
    """
    report = model.privacy_report(
        public=public_data(config),
        bad_records=data.train.bad_records,
        truncated_captions=data.train.truncated_captions,
    )
    report.write_json(workdir.report)
    report.write_html(workdir.report_page)
    logging.info("Scoring %d held-out captions ...", len(data.test))
    metrics = {
        "caption_loss": caption_losses(model, config, data),
        "few_shot": few_shot_accuracies(model, config, data),
    }
    write_whole(workdir.metrics, json.dumps(metrics, indent=2) + "\n")
    draw_figures(model, data, workdir, metrics)
    logging.info("Exporting the SavedModel ...")
    # Counts are exact facts about private records: they stay with whoever holds the data.
    released = {key: value for key, value in report.to_dict().items() if key != "counts"}
    export_captioner(
        model,
        data.tokenizer,
        workdir.saved_model,
        released,
        normalization=config.data.normalization,
    )
    return report, metrics


def caption_losses(
    model: keras.Model, config: ml_collections.ConfigDict, data: Data
) -> dict[str, Any]:
    """Held-out losses in nats per token, and what they are without pictures or without training.

    They are the captioner's, the same beside other pictures, and that of public word frequencies:
    averaged within captions first, as in the curves of training, and over all tokens.
    """
    size = config.evaluation.batch_size
    public = data.tokenizer(public_captions(), config.model.max_length)[:, 1:]
    return {
        "captioner": caption_loss(model, data.test, batch_size=size).to_dict(),
        "captioner_other_pictures": caption_loss(
            model, data.test, batch_size=size, other_pictures=True
        ).to_dict(),
        "public_unigram": unigram_loss(
            [public], data.tokenizer.vocabulary_size, data.test, batch_size=size
        ).to_dict(),
    }


def few_shot_accuracies(
    model: keras.Model, config: ml_collections.ConfigDict, data: Data
) -> dict[str, Any]:
    """The same probe on the encoder, on one with random weights, and on raw pixels; {} for ()."""
    if not config.evaluation.shots:
        return {}
    untrained = make_model(config, data.tokenizer)
    views = {
        "encoder": lambda x: model.features(x["image"]),
        "random_encoder": lambda x: untrained.features(x["image"]),
        "pixels": lambda x: x["image"],
    }
    return {name: _probe(view, config, data) for name, view in views.items()}


def _probe(view: Any, config: ml_collections.ConfigDict, data: Data) -> dict[str, Any]:
    train, train_labels = _labelled(view, data.train, config)
    test, test_labels = _labelled(view, data.test, config)
    known = np.isin(test_labels, np.unique(train_labels))
    probes = few_shot_probe(
        train,
        train_labels,
        test[known],
        test_labels[known],
        shots=tuple(config.evaluation.shots),
        draws=config.evaluation.draws,
    )
    return {f"{shot}_shot": probe.to_dict() for shot, probe in probes.items()}


def _labelled(
    view: Any, source: ImageTextSource, config: ml_collections.ConfigDict
) -> tuple[np.ndarray, np.ndarray]:
    """Features and categories of the first records that have one."""
    features, kept = extract_features(
        view,
        source,
        batch_size=config.evaluation.batch_size,
        limit=config.evaluation.probe_examples,
    )
    labels = source.labels(kept.tolist())
    return features[labels >= 0], labels[labels >= 0]


def draw_figures(model: keras.Model, data: Data, workdir: Workdir, metrics: dict[str, Any]) -> None:
    """Draws the training curve with epsilon, and held-out pictures with their captions."""
    history = TrainingLog.read(workdir.history)
    held_out = [entry for entry in history if "val_loss" in entry]
    plot_training_curve(
        workdir.figures / "training_curve.png",
        [entry["step"] for entry in history],
        [entry["loss"] for entry in history],
        [entry["epsilon"] for entry in history],
        delta=model.privacy.delta,
        held_out=([e["step"] for e in held_out], [e["val_loss"] for e in held_out]),
        references={
            "public word frequencies": metrics["caption_loss"]["public_unigram"]["per_caption"]
        },
    )
    rows = np.linspace(0, len(data.test) - 1, _SHEET).astype(int).tolist()
    images, captions = data.test.images(rows), data.test.captions(rows)
    save_caption_sheet(
        workdir.figures / "captions.png",
        data.test.pictures(rows),
        captions,
        data.tokenizer.detokenize(np.asarray(model.generate(images))),
        times_likelier(model, images, data.tokenizer(captions, model.config.max_length)).tolist(),
    )


def held_out_text(metrics: dict[str, Any]) -> str:
    """One line on what the captioner has learned."""
    own, other, public = (
        metrics["caption_loss"][name]["per_token"]
        for name in ("captioner", "captioner_other_pictures", "public_unigram")
    )
    return (
        f"Held-out captions: {own:.3f} nats per token; {other:.3f} beside other pictures than "
        f"their own, {public:.3f} by public word frequencies"
    )
