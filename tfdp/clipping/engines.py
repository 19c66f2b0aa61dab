"""The ways to per-example gradients that callers may ask for."""

from __future__ import annotations

from typing import Any

import numpy as np

ENGINES = ("auto", "single_pass", "two_pass", "vectorized")


def check_engine(engine: Any) -> None:
    """Raises ``ValueError`` for an engine that there is not."""
    if engine not in ENGINES:
        raise ValueError(f"engine={engine!r}: expected one of {', '.join(ENGINES)}.")


def checked_jit_compile(jit_compile: Any) -> bool | str:
    """Returns the flag, or "auto".

    Raises:
      ValueError: It is anything else: other text would count as yes.
    """
    if isinstance(jit_compile, bool | np.bool_):
        return bool(jit_compile)
    if not (isinstance(jit_compile, str) and jit_compile == "auto"):
        raise ValueError(f'jit_compile={jit_compile!r}: expected True, False or "auto".')
    return jit_compile
