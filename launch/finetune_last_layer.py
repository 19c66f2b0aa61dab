"""Private classifiers of features: methods, budgets and seeds, in one table and one figure.

    python -m launch.finetune_last_layer --config=configs/last_layer/cifar10.py \\
        --config.features=features/cifar10 --workdir=runs/cifar10

The same command again goes on where it stopped, or draws table and figure anew.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import ml_collections
from absl import flags, logging
from ml_collections import config_flags
from tqdm import tqdm

from launch._cli import run_program
from launch._last_layer_results import Result, ResultsFile, write_summaries
from launch._workdir import Workdir
from tfdp.training import STRATEGIES, choose_strategy
from tfdp.transfer.rows import Rows
from tfdp.transfer.settings import dotted, make_method
from tfdp.transfer.store import FeatureFolder
from tfdp.transfer.study import Budget, Candidate, fit, tune

_CONFIG = config_flags.DEFINE_config_file("config", None, "The study: configs/FILE.py[:argument].")
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of everything that the study writes.")
_STRATEGY = flags.DEFINE_enum("strategy", "auto", STRATEGIES, "How work is spread over devices.")


class Cell(NamedTuple):
    """One entry of the table: a method at an epsilon, for all its seeds."""

    name: str
    candidate: Candidate
    epsilon: float


def main(_: list[str]) -> None:
    config = _CONFIG.value
    cells = list(study_cells(config))
    workdir = Workdir(_WORKDIR.value)
    folder = FeatureFolder(config.features, verify=True)
    train, test = folder.rows(config.train_split), folder.rows(config.test_split)
    workdir.claim(config)
    results = ResultsFile(workdir.path / "results.csv")
    with choose_strategy(_STRATEGY.value).scope():
        for cell in tqdm(cells, unit="cells", desc="methods x epsilons"):
            run_cell(cell, config, train, test, results)
    print(write_summaries(results.results, workdir.path, config.title))
    print(f"Everything is in {workdir.path}")


def study_cells(config: ml_collections.ConfigDict) -> Iterator[Cell]:
    """The cells of the table; every name and setting is checked before anything runs."""
    for name, entry in config.methods.items():
        candidate = make_candidate(name, entry)
        own = entry.get("epsilons", config.epsilons)
        for epsilon in own:
            yield Cell(name, candidate, float(epsilon))


def make_candidate(name: str, entry: ml_collections.ConfigDict) -> Candidate:
    """A method of the config, with every choice of its grid tried for existence."""
    values: dict[str, Any] = entry.to_dict()
    values.pop("epsilons", None)
    known = {"method", "settings", "preparation", "grid"}
    if unknown := values.keys() - known:
        raise ValueError(
            f"methods.{name} has no key {', '.join(sorted(unknown))}; it may have "
            f"{', '.join(sorted(known | {'epsilons'}))}."
        )
    # Configs nest what dotted names say elsewhere: ConfigDict allows no dots in keys.
    values["grid"] = dotted(values.get("grid", {}))
    candidate = Candidate(**{"method": name, **values})
    for choice in candidate.choices():
        make_method(candidate.method, {**candidate.settings, **choice})
    return candidate


def run_cell(
    cell: Cell,
    config: ml_collections.ConfigDict,
    train: Rows,
    test: Rows,
    results: ResultsFile,
) -> None:
    """Tunes a method at an epsilon if it has a grid, then runs it once for each seed."""
    seeds = [
        seed
        for seed in range(config.seeds if math.isfinite(cell.epsilon) else 1)
        if not results.done(cell.name, cell.epsilon, seed)
    ]
    if not seeds:
        return
    budget = Budget(
        config.num_examples, train.num_classes, cell.epsilon, config.delta, config.adjacency
    )
    chosen, rows, budget = tune(
        cell.candidate,
        train,
        budget,
        held_out=config.tuning.held_out,
        charge=config.tuning.charge,
        seed=config.tuning.seed,
    )
    if chosen.runs:
        logging.info("%s at epsilon %g: chose %s", cell.name, cell.epsilon, chosen.settings)
    for seed in seeds:
        head, seconds = fit(
            cell.candidate,
            chosen.settings,
            rows,
            budget,
            runs=chosen.share_of_runs,
            seed=seed,
        )
        results.add(
            Result(
                method=cell.name,
                epsilon=cell.epsilon,
                delta=config.delta,
                sigma=head.plan.noise_multiplier,
                seed=seed,
                accuracy=head.evaluate(test)["accuracy"],
                seconds=round(seconds, 3),
                settings=json.dumps(chosen.settings),
                tuning_runs=chosen.runs,
                tuning_charged=chosen.charged,
            )
        )


if __name__ == "__main__":
    run_program(main)
