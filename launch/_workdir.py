"""The folder of one run, and the promise that it holds one run only."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import ml_collections

from launch._spent import read_config, run_config
from tfdp.files import FileLock, LockedError, write_whole
from tfdp.privacy import Ledger


class Workdir:
    """Paths in a run's folder.

    Args:
      path: The folder; made if it does not exist.

    Raises:
      ValueError: No folder is named.
      NotADirectoryError: There is a file of that name.
    """

    def __init__(self, path: str | None):
        if not path:
            raise ValueError("--workdir is missing: name the folder that the run writes to.")
        self.path = Path(path)
        if self.path.exists() and not self.path.is_dir():
            raise NotADirectoryError(f"--workdir={path} is a file; name a folder.")
        self.path.mkdir(parents=True, exist_ok=True)
        self.config = self.path / "config.json"
        self.ledger = self.path / "ledger.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.history = self.path / "history.jsonl"
        self.unreadable = self.path / "unreadable.jsonl"
        self.figures = self.path / "figures"
        self.metrics = self.path / "metrics.json"
        self.report = self.path / "privacy_report.json"
        self.report_page = self.path / "privacy_report.html"
        self.saved_model = self.path / "saved_model"
        self.results = self.path / "results.csv"
        self.features = self.path / "features.json"

    def open_ledger(self, writes: bool) -> Ledger:
        """Opens the run's ledger; a worker that does not write the run's files gets a copy."""
        if writes or not self.ledger.exists():
            return Ledger(self.ledger if writes else None)
        return Ledger.read(self.ledger)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes from writing results while this one does.

        Raises:
          ValueError: One is at it already; what both ran would be counted twice.
        """
        try:
            lock = FileLock(self.results.with_name(self.results.name + ".lock"))
        except LockedError as error:
            raise ValueError(
                f"--workdir={self.path} is in use by {error}: wait for it to end, or name another "
                "folder."
            ) from None
        try:
            yield
        finally:
            lock.release()

    def claim_features(self, checksum: str) -> None:
        """Writes the checksum of a study's features, or checks that they are still the same.

        Raises:
          ValueError: The folder holds results on other features, or a damaged checksum of them.
        """
        if not self.features.exists():
            write_whole(self.features, json.dumps({"sha256": checksum}) + "\n")
        elif read_config(self.features) != {"sha256": checksum}:
            raise ValueError(
                f"--workdir={self.path} holds results on other features than config.features has "
                "now: one table would mix both. Use another folder."
            )

    def _results(self) -> list[Path]:
        """What a run replaces when it ends."""
        return [self.saved_model, self.figures, self.metrics, self.report, self.results]

    def claim(self, config: ml_collections.ConfigDict, may_change: Collection[str] = ()) -> None:
        """Writes the resolved config, or checks that the folder belongs to the same run.

        Args:
          config: All settings.
          may_change: Names in it that may have other values than the last time.

        Raises:
          ValueError: The folder holds a run with other settings or a damaged config, or something
            else altogether.
        """
        ours = json.loads(config.to_json_best_effort())
        theirs = ours
        if self.config.exists():
            theirs = run_config(self.path)
        elif foreign := [path.name for path in self._results() if path.exists()]:
            raise ValueError(
                f"--workdir={self.path} holds {', '.join(foreign)} of something else, for there is "
                "no config.json of a run. Use another folder: they would be replaced."
            )
        fixed = [{k: v for k, v in c.items() if k not in may_change} for c in (theirs, ours)]
        if fixed[0] == fixed[1]:
            if theirs != ours or not self.config.exists():
                write_whole(self.config, json.dumps(ours, indent=2) + "\n")
        else:
            changed = ", ".join(_differences("config", *fixed))
            raise ValueError(
                f"--workdir={self.path} holds a run with other settings ({changed}). Use another "
                "folder, or the settings of its config.json."
            )


def _differences(name: str, old: Any, new: Any) -> list[str]:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return [] if old == new else [f"{name}: {old} there, {new} here"]
    keys = sorted(old.keys() | new.keys())
    return [text for k in keys for text in _differences(f"{name}.{k}", old.get(k), new.get(k))]
