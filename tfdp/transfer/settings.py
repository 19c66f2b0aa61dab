"""Methods from plain settings, as configs write them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from tfdp.transfer.methods import METHODS, Method
from tfdp.transfer.prepare import Preparation
from tfdp.transfer.sampled import SAMPLED, SampledHead

_Settings = TypeVar("_Settings")


def make_method(name: str, settings: Mapping[str, Any] | None = None) -> Method | SampledHead:
    """A method by name, with some of its settings changed.

    Args:
        name: one of `METHODS`, or of `SAMPLED` for training on sampled batches.
        settings: by name; those of a part of the method by a dotted one ("loop.steps") or as a
            mapping of their own.

    Raises:
        ValueError: there is no such method or setting.
    """
    known: dict[str, Any] = {**METHODS, **SAMPLED}
    if name not in known:
        raise ValueError(f"method must be one of {', '.join(known)}, got {name!r}.")
    return changed(known[name](), settings or {}, f"method {name!r}")


def make_preparation(
    method: Method | SampledHead, settings: Mapping[str, Any] | None = None
) -> Preparation | None:
    """The method's own preparation with some settings changed; None if there are none.

    Raises:
        ValueError: this method has no preparation.
    """
    if isinstance(method, SampledHead):
        if settings:
            raise ValueError("training on sampled batches has no preparation of rows.")
        return None
    return changed(method.preparation, settings, "preparation") if settings else None


def changed(thing: _Settings, settings: Mapping[str, Any], what: str) -> _Settings:
    """A dataclass with some fields replaced, those of its fields too."""
    own: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    known = [field.name for field in dataclasses.fields(thing)]  # type: ignore[arg-type]
    for key, value in settings.items():
        name, _, rest = key.partition(".")
        if name not in known:
            raise ValueError(f"{what} has no setting {name!r}; it has {_listed(known)}.")
        if rest:
            nested.setdefault(name, {})[rest] = value
        elif isinstance(value, Mapping):
            nested.setdefault(name, {}).update(value)
        else:
            own[name] = tuple(value) if isinstance(value, list) else value
    for name, inner in nested.items():
        own[name] = changed(getattr(thing, name), inner, f"{what}, {name}")
    return dataclasses.replace(thing, **own)  # type: ignore[type-var]


def dotted(nested: Mapping[str, Any]) -> dict[str, Any]:
    """{"loop": {"steps": 3}} -> {"loop.steps": 3}, for mappings within mappings of any depth."""
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": v for inner, v in dotted(value).items()}
        else:
            flat[name] = value
    return flat


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"
