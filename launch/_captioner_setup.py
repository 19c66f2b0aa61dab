"""From a config to plan, data, model and optimizer of a captioner run."""

from __future__ import annotations

import dataclasses

import keras
import ml_collections
import numpy as np

import tfdp
from tfdp.captioner import (
    Captioner,
    CaptionerConfig,
    CaptionTokenizer,
    ImageTextSource,
    icons_tokenizer,
    load_icons,
    public_captions,
    unigram_log_probabilities,
)
from tfdp.data import RandomResizedCrop
from tfdp.privacy import Ledger

#: Of a captioner's config.
SECTIONS = ("privacy", "model", "optimizer", "data", "initialization", "training", "evaluation")

OPTIMIZERS = {
    "sgd": tfdp.optimizers.DPSGD,
    "adam": tfdp.optimizers.DPAdam,
    "adamw": tfdp.optimizers.DPAdamW,
    "lamb": tfdp.optimizers.DPLAMB,
}


@dataclasses.dataclass(frozen=True)
class Data:
    """Pictures with captions.

    Attributes:
      train: The private records.
      test: Held-out records of other concepts.
      tokenizer: Its vocabulary is public.
    """

    train: ImageTextSource
    test: ImageTextSource
    tokenizer: CaptionTokenizer


def make_plan(config: ml_collections.ConfigDict) -> tfdp.PrivacyPlan:
    """Returns the plan; raises ValueError for settings that cannot be."""
    return tfdp.PrivacyPlan(**config.privacy.to_dict())


def make_model(config: ml_collections.ConfigDict, tokenizer: CaptionTokenizer) -> keras.Model:
    """Returns a private captioner with new weights.

    Raises:
      ValueError: The config was written for another vocabulary, or a setting is out of range.
    """
    planned = config.model.get("vocab_size", tokenizer.vocabulary_size)
    if planned != tokenizer.vocabulary_size:
        raise ValueError(
            f"config.model.vocab_size={planned}, but the vocabulary has "
            f"{tokenizer.vocabulary_size} pieces: give its file by config.data.vocabulary."
        )
    settings = CaptionerConfig(
        **{
            **config.model,
            "vocab_size": tokenizer.vocabulary_size,
            "start_id": tokenizer.start_id,
            "end_id": tokenizer.end_id,
        }
    )
    model = tfdp.make_private(Captioner(settings))
    if config.initialization.head_bias == "public_words":
        model.decoder.head.bias.assign(public_word_logits(config, tokenizer))
    elif config.initialization.head_bias != "zeros":
        raise ValueError(
            f"config.initialization.head_bias={config.initialization.head_bias!r}: expected "
            "public_words or zeros."
        )
    return model


def public_data(config: ml_collections.ConfigDict) -> list[str]:
    """Names the public text that shapes the model."""
    named = []
    if not config.data.vocabulary:
        named.append("WordNet's noun phrases (vocabulary)")
    if config.initialization.head_bias == "public_words":
        named.append("WordNet's noun phrases (word frequencies of the first head)")
    return named


def public_word_logits(
    config: ml_collections.ConfigDict, tokenizer: CaptionTokenizer
) -> np.ndarray:
    """Returns the log-frequency of every token in public captions, ``[V]``.

    A captioner that starts from them has no privacy to spend on learning which words are common.
    """
    targets = tokenizer(public_captions(), config.model.max_length)[:, 1:]
    logits = unigram_log_probabilities([targets], tokenizer.vocabulary_size)
    return np.where(np.isfinite(logits), logits, logits[np.isfinite(logits)].min())


def compile_model(
    model: keras.Model,
    optimizer: tfdp.optimizers.PrivateOptimizer,
    settings: ml_collections.ConfigDict,
    ledger: Ledger,
) -> None:
    """Compiles with the captioning loss and the settings of ``config.training``."""
    model.compile(
        optimizer,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0),
        microbatch_size=settings.microbatch_size,
        seed=settings.seed,
        ledger=ledger,
    )


def make_optimizer(
    settings: ml_collections.ConfigDict, plan: tfdp.PrivacyPlan
) -> tfdp.optimizers.PrivateOptimizer:
    """Returns the private optimizer that ``config.optimizer`` describes.

    Raises:
      ValueError: The name is unknown.
    """
    arguments = settings.to_dict()
    name = arguments.pop("name")
    if name not in OPTIMIZERS:
        known = ", ".join(OPTIMIZERS)
        raise ValueError(f"config.optimizer.name={name!r}: expected one of {known}.")
    peak = arguments.pop("learning_rate")
    warmup, decay = arguments.pop("warmup_steps"), arguments.pop("decay_steps")
    rate = tfdp.optimizers.warmup_cosine(peak, warmup, decay)
    return OPTIMIZERS[name](rate, privacy=plan, **arguments)


def load_data(config: ml_collections.ConfigDict) -> Data:
    """Opens the training and the held-out pairs.

    Raises:
      ValueError: ``config.data.dataset`` is unknown, or its path is missing.
      FileNotFoundError: The folder or the vocabulary does not exist.
    """
    settings = config.data
    tokenizer = CaptionTokenizer(settings.vocabulary) if settings.vocabulary else icons_tokenizer()
    crop = RandomResizedCrop(scale=tuple(settings.crop_scale), flip=settings.flip)
    return Data(
        train=_open(config, "train", tokenizer, crop if settings.augment else None),
        test=_open(config, "test", tokenizer, None),
        tokenizer=tokenizer,
    )


def _open(
    config: ml_collections.ConfigDict,
    split: str,
    tokenizer: CaptionTokenizer,
    augment: RandomResizedCrop | None,
) -> ImageTextSource:
    settings, size, length = config.data, config.model.image_size, config.model.max_length
    if settings.dataset == "packaged_icons":
        return load_icons(
            split,
            tokenizer,
            image_size=size,
            max_length=length,
            augment=augment,
            normalization=settings.normalization,
        )
    if settings.dataset != "image_text":
        raise ValueError(
            f"config.data.dataset={settings.dataset!r}: expected packaged_icons or image_text."
        )
    if not settings.path:
        raise ValueError(
            "config.data.path is empty: name the folder that launch.prepare_data made."
        )
    return ImageTextSource(
        settings.path,
        tokenizer,
        size,
        length,
        split=split,
        augment=augment,
        normalization=settings.normalization,
    )
