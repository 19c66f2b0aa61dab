"""From the settings of a run to its data, captioner and optimizer, checked before it trains.

A `config` is a dictionary of sections, as the files in `configs/` make them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfdp import checks
from tfdp.captioner.caption_loss import unigram_log_probabilities
from tfdp.captioner.captioner import Captioner
from tfdp.captioner.captioner_config import CaptionerConfig
from tfdp.captioner.icons import icons_tokenizer, load_icons, public_captions
from tfdp.captioner.image_text import ImageTextSource
from tfdp.captioner.tokenizer import CaptionTokenizer
from tfdp.data import RandomResizedCrop
from tfdp.optimizers import DPLAMB, DPSGD, DPAdam, DPAdamW, PrivateOptimizer, warmup_cosine
from tfdp.privacy import PrivacyPlan

Config = Mapping[str, Any]

_OPTIMIZERS = {"sgd": DPSGD, "adam": DPAdam, "adamw": DPAdamW, "lamb": DPLAMB}
_COUNTS = {
    "training": ("microbatch_size", "log_every"),
    "evaluation": ("batch_size", "every", "examples", "probe_examples", "draws"),
}


@dataclasses.dataclass(frozen=True)
class CaptionData:
    """Pictures with captions.

    Attributes:
        train: The private examples.
        test: Held-out examples of other concepts.
        tokenizer: Its vocabulary is public.
    """

    train: ImageTextSource
    test: ImageTextSource
    tokenizer: CaptionTokenizer


def open_data(config: Config) -> CaptionData:
    """Opens the training and the held-out pairs.

    Raises:
        ValueError: `config.data.dataset` is unknown, or its path is missing.
        FileNotFoundError: The folder or the vocabulary does not exist.
    """
    data = config["data"]
    path = data["vocabulary"]
    tokenizer = CaptionTokenizer(path) if path else icons_tokenizer()
    crop = RandomResizedCrop(scale=tuple(data["crop_scale"]), flip=data["flip"])
    return CaptionData(
        train=_open_split(config, "train", tokenizer, crop if data["augment"] else None),
        test=_open_split(config, "test", tokenizer, None),
        tokenizer=tokenizer,
    )


def _open_split(
    config: Config, split: str, tokenizer: CaptionTokenizer, augment: RandomResizedCrop | None
) -> ImageTextSource:
    dataset, path = config["data"]["dataset"], config["data"]["path"]
    options = {
        "tokenizer": tokenizer,
        "image_size": config["model"]["image_size"],
        "max_length": config["model"]["max_length"],
        "augment": augment,
        "normalization": config["data"]["normalization"],
    }
    if dataset == "packaged_icons":
        return load_icons(split, **options)
    if dataset != "image_text":
        raise ValueError(f"config.data.dataset={dataset!r}: expected packaged_icons or image_text.")
    if not path:
        raise ValueError(
            "config.data.path is empty: name the folder that launch.prepare_data made."
        )
    return ImageTextSource(path, split=split, **options)


def new_captioner(config: Config, tokenizer: CaptionTokenizer) -> Captioner:
    """A captioner with new weights, for the ids of the tokenizer.

    Raises:
        ValueError: The config was written for another vocabulary, or a setting is out of range.
    """
    planned = config["model"].get("vocab_size", tokenizer.vocabulary_size)
    if planned != tokenizer.vocabulary_size:
        raise ValueError(
            f"config.model.vocab_size={planned}, but the vocabulary has "
            f"{tokenizer.vocabulary_size} pieces: give its file by config.data.vocabulary."
        )
    ids = {
        "vocab_size": tokenizer.vocabulary_size,
        "start_id": tokenizer.start_id,
        "end_id": tokenizer.end_id,
    }
    model = Captioner(CaptionerConfig(**{**config["model"], **ids}))
    head_bias = config["initialization"]["head_bias"]
    if head_bias == "public_words":
        logits = public_word_logits(tokenizer, config["model"]["max_length"])
        model.decoder.head.bias.assign(logits)
    elif head_bias != "zeros":
        raise ValueError(
            f"config.initialization.head_bias={head_bias!r}: expected public_words or zeros."
        )
    return model


def public_word_logits(tokenizer: CaptionTokenizer, max_length: int) -> np.ndarray:
    """The log-frequency of every token in public captions, `[V]`.

    A captioner that starts from them has no privacy to spend on learning which words are common.
    """
    targets = tokenizer(public_captions(), max_length)[:, 1:]
    logits = unigram_log_probabilities([targets], tokenizer.vocabulary_size)
    return np.where(np.isfinite(logits), logits, logits[np.isfinite(logits)].min())


def private_optimizer(config: Config, plan: PrivacyPlan) -> PrivateOptimizer:
    """The private optimizer that `config.optimizer` describes, with its schedule.

    Raises:
        ValueError: There is no optimizer of that name.
    """
    arguments = dict(config["optimizer"])
    name = arguments.pop("name")
    if name not in _OPTIMIZERS:
        raise ValueError(
            f"config.optimizer.name={name!r}: expected one of {', '.join(_OPTIMIZERS)}."
        )
    rate = warmup_cosine(
        arguments.pop("learning_rate"), arguments.pop("warmup_steps"), arguments.pop("decay_steps")
    )
    return _OPTIMIZERS[name](rate, privacy=plan, **arguments)


def public_data(config: Config) -> list[str]:
    """Names the public text that shapes the model, for the privacy report."""
    named = []
    if not config["data"]["vocabulary"]:
        named.append("WordNet's noun phrases (vocabulary)")
    if config["initialization"]["head_bias"] == "public_words":
        named.append("WordNet's noun phrases (word frequencies of the first head)")
    return named


def check_run(config: Config, data: CaptionData) -> None:
    """Rejects what would otherwise stop the run once privacy is spent.

    Raises:
        TypeError: A number of the config is no number of its kind.
        ValueError: It is out of range, or the first examples are too few for the probes.
    """
    for section, names in _COUNTS.items():
        for name in names:
            checks.positive_int(f"config.{section}.{name}", config[section][name])
    checks.not_negative(
        "config.training.checkpoint_seconds", config["training"]["checkpoint_seconds"]
    )
    shots = tuple(config["evaluation"]["shots"])
    for shot in shots:
        checks.positive_int("each of config.evaluation.shots", shot)
    if shots:
        _check_probes(shots, config["evaluation"]["probe_examples"], data)


def _check_probes(shots: tuple[int, ...], limit: int, data: CaptionData) -> None:
    """Rejects probes that the categories of the first examples do not allow."""
    train, test = (
        source.labels(range(min(limit, len(source)))) for source in (data.train, data.test)
    )
    categories, counts = np.unique(train[train >= 0], return_counts=True)
    if len(categories) < 2 or counts.min() < max(shots):
        raise ValueError(
            f"config.evaluation.shots={shots} takes {max(shots)} examples of each of two "
            f"categories or more, and at least one category has too few among the first "
            f"{len(train):,} (config.evaluation.probe_examples): raise that number, or take fewer "
            "shots; () makes no probes."
        )
    if not np.isin(test, categories).any():
        raise ValueError(
            f"the first {len(test):,} held-out examples have none of the categories that the "
            "training examples have: config.evaluation.shots=() makes no probes."
        )
