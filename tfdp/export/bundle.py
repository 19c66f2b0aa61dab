"""A SavedModel folder that appears whole or not at all, with the privacy report inside."""

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras

REPORT_FILE = "assets/privacy_report.json"
"""Where a bundle holds the privacy report of its weights."""


def export_with_report(
    model: keras.Model, path: str | Path, privacy_report: Mapping[str, Any]
) -> Path:
    """Exports any Keras model by `model.export`, with its privacy report in the bundle's assets.

    Args:
        model: A built model.
        path: The folder to write; a SavedModel that is already there is replaced.
        privacy_report: The report of the training run, stored as it is.

    Returns:
        The folder written.

    Raises:
        FileExistsError: If `path` exists and is not a SavedModel.
        TypeError: If the report cannot be written as JSON.
    """
    with new_bundle(path, privacy_report) as folder:
        model.export(folder, verbose=False)
    return Path(path)


def read_report(path: str | Path) -> dict[str, Any]:
    """The privacy report in the bundle at `path`."""
    return json.loads((Path(path) / REPORT_FILE).read_text(encoding="utf-8"))


@contextlib.contextmanager
def new_bundle(path: str | Path, privacy_report: Mapping[str, Any]) -> Iterator[str]:
    """Yields a folder to save into; once saved, it gets the report and takes the place of `path`.

    Whoever serves `path` therefore never sees half a model, nor one without its report.
    """
    path = Path(path)
    report = json.dumps(dict(privacy_report), indent=2)
    if path.exists() and not (path / "saved_model.pb").is_file():
        raise FileExistsError(
            f"{path} exists and is not a SavedModel, so it was not replaced: name another folder."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as scratch:
        folder = Path(scratch) / path.name
        yield str(folder)
        (folder / REPORT_FILE).parent.mkdir(exist_ok=True)
        (folder / REPORT_FILE).write_text(report + "\n", encoding="utf-8")
        if path.exists():
            shutil.move(path, Path(scratch) / "replaced")
        shutil.move(folder, path)
