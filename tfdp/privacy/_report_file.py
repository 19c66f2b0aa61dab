"""Reports as JSON, and read back from it as they were."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# What other code relies on, in reports of every version; a number may be None.
_KINDS = {
    "notes": "list",
    "segments": "list of segments",
    "versions": "table",
    "counts": "table",
    "attacker_true_positive_rate": "table",
    "epsilon_of_groups": "table",
    "target_epsilon": "number",
    "epsilon": "number",
    "steps": "number",
    "planned_steps": "number",
}


def read_values(path: str | os.PathLike[str], schema_version: int) -> dict[str, Any]:
    """The values of a report in JSON.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a report of that schema.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no privacy report {path}.")
    try:
        values = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is not a privacy report: it holds no JSON ({error}).") from error
    if not isinstance(values, dict) or "schema_version" not in values:
        raise ValueError(f"{path} is not a privacy report: it has no schema_version.")
    if values["schema_version"] != schema_version:
        raise ValueError(
            f"{path} has schema version {values['schema_version']!r}, and this tfdp reads version "
            f"{schema_version}: use the tfdp that wrote it, or make the report anew."
        )
    values = _from_json(values)
    for key, kind in _KINDS.items():
        if key in values and not _is(kind, values[key]):
            raise ValueError(
                f"{path} is not a privacy report: {key} is {values[key]!r}, which is no {kind}."
            )
    return values


def _is(kind: str, value: Any) -> bool:
    if kind == "list of segments":
        return isinstance(value, list) and all(
            isinstance(each, dict) and isinstance(each.get("settings"), dict) for each in value
        )
    if kind == "number":
        return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
    return isinstance(value, dict if kind == "table" else list)


def to_json(value: Any) -> Any:
    """The value as JSON can hold it: infinities become the string "inf"."""
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _from_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _from_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    return math.inf if value == "inf" else value
