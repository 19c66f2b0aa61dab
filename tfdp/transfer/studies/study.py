"""A study: many methods, budgets and seeds on the same examples, run one after the other."""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tqdm import tqdm

from tfdp import checks
from tfdp.privacy import Segment
from tfdp.transfer.backbones import load_backbone
from tfdp.transfer.fine_tuning import SAMPLED
from tfdp.transfer.studies.candidates import (
    Budget,
    Candidate,
    check_candidate,
    dotted,
    make_method,
)
from tfdp.transfer.studies.study_data import StudyData
from tfdp.transfer.studies.study_results import Result, ResultsFile, spent_text
from tfdp.transfer.studies.tuning import Chosen, Fitted, fit, tune

_LOGGER = logging.getLogger(__name__)


class Cell(NamedTuple):
    """One entry of the table: a method at an epsilon, for all its seeds.

    Attributes:
        name: Of the method in the config.
        candidate: The method.
        epsilon: Of a run.
        seeds: How many runs; one where there is no noise.
    """

    name: str
    candidate: Candidate
    epsilon: float
    seeds: int


class Tuned(NamedTuple):
    """What the runs of a cell share: the choice, the examples to train on, and their budget."""

    chosen: Chosen
    examples: Any
    budget: Budget


@dataclasses.dataclass(frozen=True)
class Study:
    """What a study runs.

    Attributes:
        cells: Of its table.
        data: Its examples.
        num_examples, delta, adjacency: Of every run.
        held_out: The part of the examples that tuning judges by.
        charge: Whether tuning is charged to the budget.
        tuning_seed: Of the trial runs.
    """

    cells: Sequence[Cell]
    data: StudyData
    num_examples: int
    delta: float
    adjacency: str
    held_out: float
    charge: bool
    tuning_seed: int

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Study:
        """Returns the study of a config, with every name and setting checked.

        Raises:
            TypeError, ValueError: A number of the config or a method is wrong.
        """
        data, tuning = StudyData.from_config(config), config["tuning"]
        cells = study_cells(config, data)
        if not cells:
            raise ValueError("the study has no methods, or no epsilons: there is nothing to run.")
        if checks.seed(tuning["seed"]) is None:
            raise ValueError(
                "tuning.seed must be a whole number: an interrupted study repeats its trial runs, "
                "and only with the same noise do repeated runs spend nothing more."
            )
        return cls(
            cells=cells,
            data=data,
            num_examples=config["num_examples"],
            delta=config["delta"],
            adjacency=config["adjacency"],
            held_out=checks.share("tuning.held_out", tuning["held_out"]),
            charge=checks.boolean("tuning.charge", tuning["charge"]),
            tuning_seed=tuning["seed"],
        )

    def check(self) -> None:
        """Rejects what could not be run to its end, before anything is written or summed.

        Raises:
            TypeError, ValueError: The examples cannot be opened, or a cell cannot be run on them.
        """
        for cell in self.cells:
            train, _ = self.data.of(cell.candidate)
            try:
                check_candidate(cell.candidate, self.budget(cell, train), train, charge=self.charge)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"methods.{cell.name}, epsilon {cell.epsilon:g}: {error}"
                ) from error

    def budget(self, cell: Cell, examples: Any) -> Budget:
        """Returns what each run of a cell may spend."""
        return Budget(
            self.num_examples, examples.num_classes, cell.epsilon, self.delta, self.adjacency
        )

    def run(self, results: ResultsFile) -> None:
        """Runs what is not in the results yet: every cell with the first seed, then the next.

        A study that is cut short then has a whole table of fewer seeds.
        """
        runs = [
            (cell, seed)
            for seed in range(max(cell.seeds for cell in self.cells))
            for cell in sorted(self.cells, key=lambda cell: cell.epsilon)
            if seed < cell.seeds and not results.done(cell.name, cell.epsilon, seed)
        ]
        tuned: dict[tuple[str, float], Tuned] = {}
        for cell, seed in tqdm(runs, unit="runs", desc="methods x epsilons x seeds"):
            key = cell.name, cell.epsilon
            if key not in tuned:
                tuned[key] = self.tune(cell, self.tuning_seed)
            results.add(self._result(cell, seed, tuned[key]))

    def tune(self, cell: Cell, seed: int | None) -> Tuned:
        """Chooses the settings of a cell, and the examples and the budget that its runs have.

        Args:
            cell: The cell.
            seed: Of the trial runs and of a charged choice; None draws noise that nobody can
                repeat.
        """
        train, _ = self.data.of(cell.candidate)
        tuned = Tuned(
            *tune(
                cell.candidate,
                train,
                self.budget(cell, train),
                held_out=self.held_out,
                charge=self.charge,
                seed=self.data.seed(cell.candidate, seed),
            )
        )
        if tuned.chosen.runs:
            _LOGGER.info(
                "%s at epsilon %g: chose %s", cell.name, cell.epsilon, tuned.chosen.settings
            )
        return tuned

    def fit(
        self, cell: Cell, seed: int | None, tuned: Tuned, purpose: str = "run"
    ) -> tuple[Fitted, float]:
        """Fits what tuning chose; returns the classifier and the seconds that it took."""
        return fit(
            cell.candidate,
            tuned.chosen.settings,
            tuned.examples,
            tuned.budget,
            runs=tuned.chosen.share_of_runs,
            seed=self.data.seed(cell.candidate, seed),
            purpose=purpose,
        )

    def _result(self, cell: Cell, seed: int, tuned: Tuned) -> Result:
        """One run and its accuracy on the test examples."""
        fitted, seconds = self.fit(cell, seed, tuned)
        chosen, plan = tuned.chosen, fitted.plan
        return Result(
            method=cell.name,
            epsilon=cell.epsilon,
            delta=self.delta,
            sigma=plan.noise_multiplier,
            seed=seed,
            accuracy=fitted.evaluate(self.data.of(cell.candidate)[1])["accuracy"],
            seconds=round(seconds, 3),
            settings=json.dumps(chosen.settings),
            tuning_runs=chosen.runs,
            tuning_charged=chosen.charged,
            epsilon_with_tuning=chosen.epsilon_with(plan) if chosen.runs else cell.epsilon,
            spent=spent_text([Segment(plan.settings, plan.steps)]),
            tuning_spent=spent_text(chosen.spent),
        )


def study_cells(config: Mapping[str, Any], data: StudyData) -> tuple[Cell, ...]:
    """Returns the cells of a config's table; every name and setting is checked."""
    cells = []
    seeds = checks.positive_int("seeds", config["seeds"])
    for name, entry in config["methods"].items():
        candidate = _candidate(name, entry, data)
        for epsilon in _epsilons(name, entry.get("epsilons", config["epsilons"])):
            # Without noise there is nothing to repeat, unless batches are sampled.
            random = math.isfinite(epsilon) or candidate.method in SAMPLED
            cells.append(Cell(name, candidate, epsilon, seeds if random else 1))
    return tuple(cells)


def _epsilons(name: str, values: Sequence[object]) -> list[float]:
    """Returns the budgets of a method; one twice would be the same runs twice, noise included."""
    epsilons = [_epsilon(name, value) for value in values]
    if len(set(epsilons)) < len(epsilons):
        raise ValueError(
            f"methods.{name}: epsilons must differ, got {epsilons}; name each once, and the option "
            "too: --config.epsilons=(1.0,) --config.epsilons=(8.0,) means (1.0, 8.0)."
        )
    return epsilons


def _epsilon(name: str, value: object) -> float:
    """Returns a budget of a config; from the command line infinity comes as 1e999 only."""
    try:
        return math.inf if value == math.inf else checks.positive("epsilon", value)
    except (TypeError, ValueError):
        raise ValueError(
            f"methods.{name}: each of epsilons must be a number above 0, or infinity (1e999 on the "
            f"command line, as in --config.epsilons='(1.0, 1e999)'), got {value!r}."
        ) from None


def _candidate(name: str, entry: Mapping[str, Any], data: StudyData) -> Candidate:
    """Returns a method of the config, with every choice of its grid tried for existence."""
    values = {key: value for key, value in entry.items() if key != "epsilons"}
    known = {"method", "settings", "preparation", "grid"}
    if unknown := values.keys() - known:
        raise ValueError(
            f"methods.{name} has no key {', '.join(sorted(unknown))}; it may have "
            f"{', '.join(sorted(known | {'epsilons'}))}."
        )
    for key in ("settings", "preparation", "grid"):
        if not isinstance(values.get(key, {}), Mapping):
            raise TypeError(f"methods.{name}.{key} must map names to values, got {values[key]!r}.")
    # Configs nest what dotted names say elsewhere: ConfigDict allows no dots in keys.
    values["grid"] = dotted(values.get("grid", {}))
    try:
        candidate = Candidate(**{"method": name, **values})
    except (TypeError, ValueError) as error:
        raise ValueError(f"methods.{name}: {error}") from error
    for choice in candidate.choices():
        make_method(candidate.method, {**candidate.settings, **choice})
    if candidate.method != "fine_tune":
        return candidate
    backbone = functools.partial(
        load_backbone, data.backbone, data.weights or None, data.image_size or None
    )
    return dataclasses.replace(candidate, settings={**candidate.settings, "backbone": backbone})
