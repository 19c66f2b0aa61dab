"""Seeds of their own for runs that share one: what is drawn twice composes with nothing.

The cost of several releases adds up as accounted only if each has noise of its own. Two releases
under the same noise give away their exact difference, to people who do not know the seed too.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping

import numpy as np

from tfdp import checks
from tfdp.privacy.noise import NoiseKey


def child_seed(seed: int | None, *purpose: object) -> int | None:
    """A seed for one purpose, of many that follow from the same seed.

    Args:
        seed: what they share; None, for fresh entropy, stays None.
        *purpose: all that tells this use of the seed from others: plain values, settings
            (dataclasses), mappings, sequences, arrays.

    Returns:
        128 bits of a keyed hash of the purpose. Whoever knows the seed knows them too.

    Raises:
        TypeError: the seed is no whole number.
    """
    checks.seed(seed)
    if seed is None:
        return None
    return NoiseKey.from_seed(seed).child(_words(purpose)).as_int()


def _words(thing: object) -> str:
    """The same text for the same settings in any process, and another one for others."""
    if thing is None or isinstance(thing, bool | int | float | str | bytes):
        return repr(thing)
    if isinstance(thing, np.generic):
        return repr(thing.item())
    if isinstance(thing, Mapping):
        return _listed("{}", (f"{_words(key)}:{_words(value)}" for key, value in thing.items()))
    if isinstance(thing, list | tuple):
        return _listed("[]", map(_words, thing))
    name = type(thing).__name__
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        fields = {field.name: getattr(thing, field.name) for field in dataclasses.fields(thing)}
        return name + _words(fields)
    if isinstance(thing, np.ndarray):
        return f"{thing.dtype}{thing.shape}{hashlib.blake2b(thing.tobytes()).hexdigest()}"
    if hasattr(thing, "get_config"):  # optimizers of Keras, which numbers them by name
        return name + _words({k: v for k, v in thing.get_config().items() if k != "name"})
    return name


def _listed(brackets: str, items: object) -> str:
    return brackets[0] + ",".join(items) + brackets[1]  # type: ignore[arg-type]
