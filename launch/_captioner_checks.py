"""All of a captioner's run that can be found wrong before its folder is claimed and it trains."""

from __future__ import annotations

import ml_collections
import numpy as np

from launch._captioner_setup import Data
from tfdp import checks

_COUNTS = {
    "training": ("microbatch_size", "log_every"),
    "evaluation": ("batch_size", "every", "examples", "probe_examples", "draws"),
}


def check_run(config: ml_collections.ConfigDict, data: Data) -> None:
    """Refuses what would otherwise stop the run once privacy is spent.

    Raises:
        TypeError, ValueError: a number of the config is none that can be, or the first records
            are too few for the probes.
    """
    for section, names in _COUNTS.items():
        for name in names:
            checks.positive_int(f"config.{section}.{name}", config[section][name])
    checks.not_negative("config.training.checkpoint_seconds", config.training.checkpoint_seconds)
    for shot in config.evaluation.shots:
        checks.positive_int("each of config.evaluation.shots", shot)
    if config.evaluation.shots:
        _check_probes(config.evaluation, data)


def _check_probes(settings: ml_collections.ConfigDict, data: Data) -> None:
    """Refuses probes that the categories of the first records do not allow."""
    train, test = (
        source.labels(range(min(settings.probe_examples, len(source))))
        for source in (data.train, data.test)
    )
    categories, counts = np.unique(train[train >= 0], return_counts=True)
    if len(categories) < 2 or counts.min() < max(settings.shots):
        raise ValueError(
            f"config.evaluation.shots={tuple(settings.shots)} takes {max(settings.shots)} records "
            f"of each of two categories or more, and the first {len(train):,} hold too few of one "
            "at least (config.evaluation.probe_examples): look at more records, or take fewer; () "
            "leaves the probes out."
        )
    if not np.isin(test, categories).any():
        raise ValueError(
            f"the first {len(test):,} held-out records have none of the categories that the "
            "training records have: config.evaluation.shots=() leaves the probes out."
        )
