"""What the runs in several folders have spent: training runs and studies of last layers."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfdp.privacy import Ledger, Segment
from tfdp.privacy.report_text import SEED_NOTE
from tfdp.transfer.studies.study_results import OWN_SEED, exports, segments_of, whole_lines

Spent = Ledger | list[Segment]
#: Columns of results that say of which run a line is.
_NEEDED = ("method", "epsilon", "delta", "seed")


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
            config = run_config(folder)
            delta = (config.get("privacy") or {}).get("delta")
            self.deltas |= {float(delta)} if delta else set()
            if (config.get("training") or {}).get("seed") is not None:
                self._seeded(folder)
        elif (folder / "results.csv").is_file():
            self._add_study(folder)
        else:
            raise FileNotFoundError(
                f"{folder} holds no ledger.jsonl of a training run and no results.csv of a study "
                "of last layers: name the folder that a run wrote to."
            )

    def _add_study(self, folder: Path) -> None:
        rows: list[Mapping[str, Any]] = [*_rows(folder / "results.csv")]
        for number, made in enumerate(exports(folder)):
            rows.append({**made, "exported": f"export {number + 1}" if number else "export"})
        if any(row.get("seed") != OWN_SEED for row in rows):
            self._seeded(folder)
        without = [row for row in rows if math.isinf(float(row["epsilon"]))]
        for row in rows:
            if row not in without:
                self._add_fit(folder, row)
        if without:
            self.notes.append(
                f"{folder} holds {len(without)} results without noise, which are not counted: "
                "whoever publishes them gives no guarantee at all"
            )

    def _seeded(self, folder: Path) -> None:
        """Noise under different settings and seeds is independent, to those who know no seed."""
        self.notes.append(f"{folder}: {SEED_NOTE}")

    def _add_fit(self, folder: Path, row: Mapping[str, Any]) -> None:
        """One fit, and the runs that tuned it: once for all seeds, and anew for the export."""
        cell = f"{folder}: {row['method']}, epsilon {row['epsilon']}"
        try:
            own, tuning = (segments_of(row[name]) for name in ("spent", "tuning_spent"))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{folder} does not say what {row['method']} has spent ({error!r})."
            ) from error
        exported = row.get("exported")
        self.parts[f"{cell}, {exported or 'seed ' + str(row['seed'])}"] = own
        if tuning:
            self.parts[f"{cell}, tuning{f' of the {exported}' if exported else ''}"] = tuning
        self.deltas.add(float(row["delta"]))


def _rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        missing = [name for name in _NEEDED if name not in (reader.fieldnames or _NEEDED)]
        if missing:
            raise ValueError(f"{path} holds no results of a study: no {', '.join(missing)}.")
        return whole_lines(reader, path)


def run_config(folder: Path) -> dict[str, Any]:
    """The settings of the run in a folder.

    Raises:
        FileNotFoundError: it holds none.
        ValueError: they are damaged.
    """
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
        raise FileNotFoundError(f"there is no {path}: the settings of the run are unknown.")
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is damaged: it holds no JSON ({error}).") from error
