"""What a study of last layers runs: its cells, their rows, and one run after the other."""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import ml_collections
from absl import logging
from tqdm import tqdm

from launch._last_layer_results import Result, ResultsFile
from launch._spent import spent_text
from tfdp import checks
from tfdp.privacy import Segment
from tfdp.transfer.backbones import Backbone, load_backbone
from tfdp.transfer.datasets import COMMON, PictureSet, open_splits
from tfdp.transfer.sampled import Pictures
from tfdp.transfer.seeds import child_seed
from tfdp.transfer.settings import dotted, make_method
from tfdp.transfer.store import FeatureFolder
from tfdp.transfer.study import Budget, Candidate, Chosen, Fitted, fit, tune

_USUAL_DTYPE = "float16"  # of features


class Cell(NamedTuple):
    """One entry of the table: a method at an epsilon, for all its seeds.

    Attributes:
        name: of the method in the config.
        candidate: the method.
        epsilon: of a run.
        seeds: how many runs; one where there is no noise.
    """

    name: str
    candidate: Candidate
    epsilon: float
    seeds: int


def study_cells(config: ml_collections.ConfigDict) -> list[Cell]:
    """The cells of the table; every name and setting is checked before anything runs."""
    cells = []
    checks.positive_int("seeds", config.seeds)
    for name, entry in config.methods.items():
        candidate = make_candidate(name, entry, config)
        for epsilon in _epsilons(name, entry.get("epsilons", config.epsilons)):
            cells.append(Cell(name, candidate, epsilon, _seeds(config, candidate, epsilon)))
    return cells


def _epsilons(name: str, values: Sequence[object]) -> list[float]:
    """The budgets of a method; the same twice would be the same runs twice, noise included."""
    epsilons = [_epsilon(name, value) for value in values]
    if len(set(epsilons)) < len(epsilons):
        raise ValueError(
            f"methods.{name}: epsilons must differ, got {epsilons}; name each once, and the option "
            "too: --config.epsilons=(1.0,) --config.epsilons=(8.0,) means (1.0, 8.0)."
        )
    return epsilons


def _epsilon(name: str, value: object) -> float:
    """A budget of a config; from the command line infinity comes as 1e999 only."""
    try:
        return math.inf if value == math.inf else checks.positive("epsilon", value)
    except (TypeError, ValueError):
        raise ValueError(
            f"methods.{name}: each of epsilons must be a number above 0, or infinity (1e999 on the "
            f"command line, as in --config.epsilons='(1.0, 1e999)'), got {value!r}."
        ) from None


def _seeds(config: ml_collections.ConfigDict, candidate: Candidate, epsilon: float) -> int:
    """Without noise there is nothing to repeat, unless batches are sampled."""
    random = math.isfinite(epsilon) or not hasattr(make_method(candidate.method), "preparation")
    return config.seeds if random else 1


def make_candidate(
    name: str, entry: ml_collections.ConfigDict, config: ml_collections.ConfigDict
) -> Candidate:
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
    for key in ("settings", "preparation", "grid"):
        if not isinstance(values.get(key, {}), dict):
            raise TypeError(f"methods.{name}.{key} must map names to values, got {values[key]!r}.")
    values["grid"] = dotted(values.get("grid", {}))
    try:
        candidate = Candidate(**{"method": name, **values})
    except (TypeError, ValueError) as error:
        raise ValueError(f"methods.{name}: {error}") from error
    for choice in candidate.choices():
        make_method(candidate.method, {**candidate.settings, **choice})
    if candidate.method == "fine_tune":
        own = {"backbone": functools.partial(make_backbone, config)}
        return Candidate(**{"method": name, **values, "settings": {**candidate.settings, **own}})
    return candidate


def make_backbone(
    config: ml_collections.ConfigDict, name: str | None = None, image_size: int | None = None
) -> Backbone:
    """The backbone of the config, or another one with the config's weights."""
    entry = config.backbone
    size = image_size or entry.image_size or None
    return load_backbone(name or entry.name, entry.weights or None, size)


class Data:
    """The rows of the config's splits, each opened when a method first asks for its kind."""

    def __init__(self, config: ml_collections.ConfigDict) -> None:
        self._config = config

    def of(self, candidate: Candidate) -> tuple[Any, Any]:
        """Rows to train on and to test on."""
        return self.pictures if candidate.method == "fine_tune" else self.features

    def seed(self, candidate: Candidate, seed: int | None) -> int | None:
        """The seed for these rows: studies of other rows have other noise under the same seed.

        Names tell the rows of data sets that are the same everywhere. Others of one name may
        differ, and of features out of TFRecord files nobody knows what made them.
        """
        config = self._config
        if candidate.method == "fine_tune":
            pictures, backbone = config.pictures, config.backbone
            rows: Any = [pictures.dataset, backbone.name, backbone.image_size]
            if pictures.dataset not in COMMON:
                rows.append(pictures.path)
            if backbone.weights:
                rows.append(backbone.weights)
        else:
            manifest = self.folder.manifest
            rows = [manifest.get(key) for key in ("dataset", "backbone", "preprocessing")]
            if (dtype := manifest.get("dtype", _USUAL_DTYPE)) != _USUAL_DTYPE:
                rows.append(dtype)  # otherwise rounded rows are other rows
            if manifest["dataset"].get("name") not in COMMON:
                rows.append(self.checksum)
        return child_seed(seed, config.train_split, rows)

    @functools.cached_property
    def folder(self) -> FeatureFolder:
        """The feature folder; all its files have their checksums."""
        return FeatureFolder(self._config.features, verify=True)

    @property
    def checksum(self) -> str:
        """SHA-256 of the rows: of the checksums of their files, and of what made them."""
        manifest, config = self.folder.manifest, self._config
        made = [manifest.get(key) for key in ("dataset", "backbone", "preprocessing")]
        made += [manifest["splits"][split] for split in (config.train_split, config.test_split)]
        return hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()

    @functools.cached_property
    def features(self) -> tuple[Any, Any]:
        """Feature rows."""
        config = self._config
        return self.folder.rows(config.train_split), self.folder.rows(config.test_split)

    @functools.cached_property
    def pictures(self) -> tuple[Any, Any]:
        """The pictures themselves, for methods that train the backbone."""
        size = self._config.backbone.image_size or make_backbone(self._config).image_size
        train, test = self._picture_sets
        return Pictures(train, size), Pictures(test, size)

    @property
    def picture_names(self) -> list[str]:
        """Names of the classes of the pictures."""
        return list(self._picture_sets[0].class_names)

    @functools.cached_property
    def _picture_sets(self) -> list[PictureSet]:
        config = self._config
        splits = config.train_split, config.test_split
        return open_splits(config.pictures.dataset, splits, config.pictures.path)


def run_study(
    cells: Sequence[Cell], config: ml_collections.ConfigDict, data: Data, results: ResultsFile
) -> None:
    """Runs what is not in the results yet: every cell with the first seed, then the next.

    A study that is cut short then has a whole table of fewer seeds.
    """
    runs = [
        (cell, seed)
        for seed in range(max((cell.seeds for cell in cells), default=0))
        for cell in sorted(cells, key=lambda cell: cell.epsilon)
        if seed < cell.seeds and not results.done(cell.name, cell.epsilon, seed)
    ]
    tuned: dict[tuple[str, float], tuple[Chosen, Any, Budget]] = {}
    for cell, seed in tqdm(runs, unit="runs", desc="methods x epsilons x seeds"):
        key = cell.name, cell.epsilon
        if key not in tuned:
            tuned[key] = tune_cell(cell, config, data, config.tuning.seed)
        results.add(run(cell, seed, config, data, *tuned[key]))


def budget_of(cell: Cell, config: ml_collections.ConfigDict, rows: Any) -> Budget:
    """What each run of a cell may spend."""
    return Budget(
        config.num_examples, rows.num_classes, cell.epsilon, config.delta, config.adjacency
    )


def tune_cell(
    cell: Cell, config: ml_collections.ConfigDict, data: Data, seed: int | None
) -> tuple[Chosen, Any, Budget]:
    """The settings of a cell, and the rows and budget that its runs have.

    Args:
        seed: of the trial runs and of a charged choice; None draws noise that nobody can repeat.
    """
    train, _ = data.of(cell.candidate)
    budget = budget_of(cell, config, train)
    chosen, rows, budget = tune(
        cell.candidate,
        train,
        budget,
        held_out=config.tuning.held_out,
        charge=config.tuning.charge,
        seed=data.seed(cell.candidate, seed),
    )
    if chosen.runs:
        logging.info("%s at epsilon %g: chose %s", cell.name, cell.epsilon, chosen.settings)
    return chosen, rows, budget


def fit_chosen(
    cell: Cell,
    seed: int | None,
    data: Data,
    chosen: Chosen,
    rows: Any,
    budget: Budget,
    purpose: str = "run",
) -> tuple[Fitted, float]:
    """What tuning came to, fitted on its rows and budget; with the seconds that it took."""
    return fit(
        cell.candidate,
        chosen.settings,
        rows,
        budget,
        runs=chosen.share_of_runs,
        seed=data.seed(cell.candidate, seed),
        purpose=purpose,
    )


def run(
    cell: Cell,
    seed: int,
    config: ml_collections.ConfigDict,
    data: Data,
    chosen: Chosen,
    rows: Any,
    budget: Budget,
) -> Result:
    """One run and its accuracy on the test rows."""
    fitted, seconds = fit_chosen(cell, seed, data, chosen, rows, budget)
    return Result(
        method=cell.name,
        epsilon=cell.epsilon,
        delta=config.delta,
        sigma=fitted.plan.noise_multiplier,
        seed=seed,
        accuracy=fitted.evaluate(data.of(cell.candidate)[1])["accuracy"],
        seconds=round(seconds, 3),
        settings=json.dumps(chosen.settings),
        tuning_runs=chosen.runs,
        tuning_charged=chosen.charged,
        epsilon_with_tuning=chosen.epsilon_with(fitted.plan) if chosen.runs else cell.epsilon,
        spent=spent_text([Segment(fitted.plan.settings, fitted.plan.steps)]),
        tuning_spent=spent_text(chosen.spent),
    )
