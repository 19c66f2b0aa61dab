"""What the runs in several folders have spent: training runs and studies of last layers."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfdp.privacy import Ledger, Segment, UpdateSettings, noise_for_epsilon

Spent = Ledger | Segment


class Runs:
    """The parts that `tfdp.privacy.compose` adds up, and what else a reader should know.

    Attributes:
        parts: by name.
        deltas: of the runs, as their configs or results state them.
        notes: what is not among the parts.
    """

    def __init__(self) -> None:
        self.parts: dict[str, Spent] = {}
        self.deltas: set[float] = set()
        self.notes: list[str] = []

    def add(self, folder: Path) -> None:
        """Adds what a folder's run or study has spent.

        Raises:
            FileNotFoundError: it holds neither a ledger nor results.
            ValueError: they are damaged, or do not say what was spent.
        """
        if (folder / "ledger.jsonl").is_file():
            self.parts[str(folder)] = Ledger.read(folder)
            delta = _config(folder).get("privacy", {}).get("delta")
            self.deltas |= {float(delta)} if delta else set()
        elif (folder / "results.csv").is_file():
            self._add_study(folder)
        else:
            raise FileNotFoundError(
                f"{folder} holds no ledger.jsonl of a training run and no results.csv of a study "
                "of last layers: name the folder that a run wrote to."
            )

    def _add_study(self, folder: Path) -> None:
        config = _config(folder)
        rows = list(_rows(folder / "results.csv"))
        without = [row for row in rows if math.isinf(float(row["epsilon"]))]
        for row in rows:
            if row not in without:
                name = f"{folder}: {row['method']}, epsilon {row['epsilon']}, seed {row['seed']}"
                self.parts[name] = _release(folder, row, config)
                self.deltas.add(float(row["delta"]))
        if without:
            self.notes.append(
                f"{folder} holds {len(without)} results without noise, which are not counted: "
                "whoever publishes them gives no guarantee at all"
            )


def _release(folder: Path, row: Mapping[str, str], config: Mapping[str, Any]) -> Segment:
    """One fit of a last layer, with the runs that tuned it, as the one release it amounts to.

    Its releases are Gaussian and use every row, so that together they are one Gaussian release,
    which (epsilon, delta) fixes.
    """
    methods = config.get("methods") or {}
    name = row["method"]
    if (methods.get(name) or {}).get("method", name) == "fine_tune":
        raise ValueError(
            f"{folder}: results.csv does not hold the updates of {name}, which sampled its "
            "records, so that it cannot be composed with others: leave the folder out."
        )
    try:
        records = int(config["num_examples"])
        whole = UpdateSettings(records, records, 0.0, 1.0, "full_batch", config["adjacency"])
        target = max(float(row["epsilon"]), float(row.get("epsilon_with_tuning") or 0))
        noise = noise_for_epsilon(target, float(row["delta"]), whole, 1)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{folder} does not say what {name} has spent ({error}).") from error
    return Segment(
        UpdateSettings(records, records, noise, 1.0, "full_batch", config["adjacency"]), 1
    )


def _rows(path: Path) -> Iterator[Mapping[str, str]]:
    """Complete lines of the results; the last one may have been cut off."""
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if all(value not in (None, "") for value in row.values()):
                yield row


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    config = read_config(path)
    if not isinstance(config, dict):
        raise ValueError(f"{path} is not the config of a run.")
    return config


def read_config(path: Path) -> Any:
    """The JSON that a run wrote its settings to.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}: the settings of the run cannot be told.")
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is damaged: it holds no JSON ({error}).") from error
