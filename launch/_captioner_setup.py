"""From a config to plan, data, model and optimizer of a captioner run."""

from __future__ import annotations

import dataclasses

import keras
import ml_collections

import tfdp
from tfdp.data import CaptionTokenizer, ImageTextSource, load_icons, load_vocabulary
from tfdp.models import Captioner, CaptionerConfig
from tfdp.privacy import Ledger

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
      test_part: The part of them that is looked at during training.
      tokenizer: Its vocabulary is public.
    """

    train: ImageTextSource
    test: ImageTextSource
    test_part: ImageTextSource
    tokenizer: CaptionTokenizer


def make_plan(config: ml_collections.ConfigDict) -> tfdp.PrivacyPlan:
    """Returns the plan; raises ValueError for settings that cannot be."""
    return tfdp.PrivacyPlan(**config.privacy)


def make_model(config: ml_collections.ConfigDict, tokenizer: CaptionTokenizer) -> keras.Model:
    """Returns a private captioner with new weights."""
    settings = CaptionerConfig(
        **{
            **config.model,
            "vocab_size": tokenizer.vocabulary_size,
            "start_id": tokenizer.start_id,
            "end_id": tokenizer.end_id,
        }
    )
    return tfdp.make_private(Captioner(settings))


def compile_model(
    model: keras.Model,
    config: ml_collections.ConfigDict,
    plan: tfdp.PrivacyPlan,
    ledger: Ledger,
) -> None:
    """Compiles with the config's optimizer and the captioning loss."""
    model.compile(
        make_optimizer(config.optimizer, plan),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0),
        microbatch_size=config.training.microbatch_size,
        seed=config.training.seed,
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
