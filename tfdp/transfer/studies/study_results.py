"""What a study leaves behind: results as CSV and JSON, a table, a figure, and what it spent."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfdp.files import unfinished, write_whole
from tfdp.privacy import Segment, StepSettings

#: The file in a study's folder that lists the classifiers that were exported from it.
EXPORTED = "exported.json"
#: What that file says in place of a seed, where there is none.
OWN_SEED = "of its own"


@dataclasses.dataclass(frozen=True)
class Result:
    """One run.

    Attributes:
        method: The name in the config.
        epsilon, delta: Of the run.
        sigma: Noise multiplier that the whole budget amounts to as one release.
        seed: Of the noise.
        accuracy: On the test examples, 0 to 1.
        seconds: That fitting took.
        settings: JSON of the settings that tuning chose, "{}" without tuning.
        tuning_runs: Private runs that tuning made for this method and epsilon.
        tuning_charged: Whether they shared the budget.
        epsilon_with_tuning: Of the run together with the runs that tuned it.
        spent: JSON of the run's steps, for sums with other runs; see `spent_text`.
        tuning_spent: The same of the runs that tuned it, which all seeds share.
    """

    method: str
    epsilon: float
    delta: float
    sigma: float
    seed: int
    accuracy: float
    seconds: float
    settings: str = "{}"
    tuning_runs: int = 0
    tuning_charged: bool = False
    epsilon_with_tuning: float = math.inf
    spent: str = "[]"
    tuning_spent: str = "[]"


_FIELDS = [field.name for field in dataclasses.fields(Result)]


class ResultsFile:
    """The file results.csv: one line per run, written as soon as it is done; read to resume.

    Raises:
        ValueError: The file there has other columns.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.results: list[Result] = _read(path) if path.exists() else []
        self._done = {(r.method, r.epsilon, r.seed) for r in self.results}
        with unfinished(path) as partial, open(partial, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow(_FIELDS)
            csv.writer(file).writerows(map(dataclasses.astuple, self.results))

    def done(self, method: str, epsilon: float, seed: int) -> bool:
        """Returns whether a run is there already."""
        return (method, epsilon, seed) in self._done

    def add(self, result: Result) -> None:
        """Appends a run."""
        self.results.append(result)
        self._done.add((result.method, result.epsilon, result.seed))
        with open(self._path, "a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow(dataclasses.astuple(result))


def _read(path: Path) -> list[Result]:
    with open(path, newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if list(reader.fieldnames or _FIELDS) != _FIELDS:
            raise ValueError(
                f"{path} has the columns {', '.join(reader.fieldnames or [])}: another version "
                f"wrote it. This one has {', '.join(_FIELDS)}; use another folder."
            )
        return [_parsed(row) for row in whole_lines(reader, path)]


def _parsed(row: dict[str, str]) -> Result:
    numbers = {name: float(row[name]) for name in _FIELDS[1:7]}
    numbers["seed"] = int(row["seed"])
    return Result(
        method=row["method"],
        **numbers,  # type: ignore[arg-type]
        settings=row["settings"],
        tuning_runs=int(row["tuning_runs"]),
        tuning_charged=row["tuning_charged"] == "True",
        epsilon_with_tuning=float(row["epsilon_with_tuning"]),
        spent=row["spent"],
        tuning_spent=row["tuning_spent"],
    )


def write_summaries(results: Sequence[Result], workdir: Path, title: str) -> str:
    """Writes results.json, table.md and the figure; returns the table."""
    plain = [_plain(result) for result in results]
    write_whole(workdir / "results.json", json.dumps(plain, indent=1) + "\n")
    text = accuracy_table(results)
    write_whole(workdir / "table.md", text + "\n")
    draw(results, workdir / "figures" / "accuracy.png", title)
    return text


def accuracy_table(results: Sequence[Result]) -> str:
    """Returns accuracy in percent, mean and deviation over seeds, by method and epsilon."""
    methods = list(dict.fromkeys(result.method for result in results))
    epsilons = sorted({result.epsilon for result in results})
    lines = [
        "| method | " + " | ".join(_name(epsilon) for epsilon in epsilons) + " |",
        "|---" * (len(epsilons) + 1) + "|",
    ]
    for method in methods:
        cells = [_cell(_scores(results, method, epsilon)) for epsilon in epsilons]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(results: Sequence[Result], path: Path, title: str) -> None:
    """Draws accuracy against epsilon, a line a method, with the non-private ones dashed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5), layout="constrained")
    axis = figure.add_subplot()
    for number, method in enumerate(dict.fromkeys(result.method for result in results)):
        found = {r.epsilon for r in results if r.method == method}
        finite = sorted(epsilon for epsilon in found if math.isfinite(epsilon))
        scores = [_scores(results, method, epsilon) for epsilon in finite]
        color = f"C{number % 10}"
        mark = "os^Dv<>PX*"[number // 10 % 10]
        if finite:
            axis.errorbar(
                finite,
                [float(np.mean(s)) for s in scores],
                [float(np.std(s, ddof=1)) if len(s) > 1 else 0.0 for s in scores],
                color=color,
                marker=mark,
                capsize=3,
                label=method,
            )
        elif found:
            mean = float(np.mean(_scores(results, method, math.inf)))
            axis.axhline(mean, color="#333333", linestyle="--", label=f"{method}, no privacy")
    axis.set_xscale("log")
    ticks = sorted({r.epsilon for r in results if math.isfinite(r.epsilon)})
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.set(xlabel="epsilon", ylabel="accuracy on test (%)", title=title)
    axis.grid(alpha=0.25, which="both")
    figure.legend(loc="outside right upper", fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure).print_png(path, metadata={"Software": None})


def _scores(results: Sequence[Result], method: str, epsilon: float) -> list[float]:
    return [100 * r.accuracy for r in results if (r.method, r.epsilon) == (method, epsilon)]


def _cell(scores: Sequence[float]) -> str:
    if not scores:
        return ""
    if len(scores) == 1:
        return f"{scores[0]:.2f}"
    return f"{np.mean(scores):.2f} ± {np.std(scores, ddof=1):.2f}"


def _name(epsilon: float) -> str:
    return "no privacy" if math.isinf(epsilon) else f"ε = {epsilon:g}"


def _plain(result: Result) -> dict[str, Any]:
    values = dataclasses.asdict(result)
    for name in ("settings", "spent", "tuning_spent"):
        values[name] = json.loads(values[name])
    for name in ("epsilon", "epsilon_with_tuning"):
        if math.isinf(values[name]):
            values[name] = "inf"
    return values


def exports(folder: Path) -> list[dict[str, Any]]:
    """Returns what a study's folder says of each classifier that was exported from it, in order.

    Raises:
        ValueError: The file is damaged.
    """
    path = folder / EXPORTED
    if not path.is_file():
        return []
    try:
        made = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is damaged: it holds no JSON ({error}).") from error
    if not isinstance(made, list) or not all(isinstance(one, dict) for one in made):
        raise ValueError(
            f"{path} is damaged: it does not list what was exported. Restore the file."
        )
    return made


def spent_text(segments: Sequence[Segment]) -> str:
    """Returns the steps that were made as JSON, for the results."""
    return json.dumps(
        [{"settings": part.settings.to_dict(), "steps": part.steps} for part in segments]
    )


def segments_of(text: str) -> list[Segment]:
    """Returns the steps that `spent_text` wrote.

    Raises:
        KeyError, TypeError, ValueError: The text was not written by it.
    """
    return [
        Segment(StepSettings.from_dict(part["settings"]), part["steps"])
        for part in json.loads(text)
    ]


def whole_lines(lines: Iterable[dict[Any, Any]], path: Path) -> list[dict[str, str]]:
    """Returns the lines of results that are complete; the last one may have been cut off.

    What a run spent comes last in its line. Only in the last line may that be incomplete JSON, or
    missing: anywhere else it is damage that must not be ignored.

    Raises:
        ValueError: Another line than the last one lacks a field, or has one too many.
    """
    found = list(lines)
    if found and not (_is_complete(found[-1]) and _is_json(found[-1])):
        found.pop()
    for line in found:
        if not _is_complete(line):
            raise ValueError(
                f"{path} is damaged: a line before its last one, of {line.get('method') or '?'}, "
                "was cut off or added to, so what was spent is not known. Restore the file."
            )
    return found


def _is_complete(line: Mapping[Any, Any]) -> bool:
    return None not in line and all(value not in (None, "") for value in line.values())


def _is_json(line: Mapping[str, str]) -> bool:
    try:
        for name in ("spent", "tuning_spent"):
            json.loads(line.get(name, "[]"))
    except ValueError:
        return False
    return True
