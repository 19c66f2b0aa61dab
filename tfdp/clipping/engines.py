"""The ways to per-example gradients that callers may ask for."""

from __future__ import annotations

from typing import Any

ENGINES = ("auto", "single_pass", "two_pass", "vectorized")


def check_engine(engine: Any) -> None:
    """Raises ``ValueError`` for an engine that there is not."""
    if engine not in ENGINES:
        raise ValueError(f"engine={engine!r}: expected one of {', '.join(ENGINES)}.")


def check_jit_compile(jit_compile: Any) -> None:
    """Raises ``ValueError`` for anything but a flag or "auto": other text would count as yes."""
    if not (isinstance(jit_compile, bool) or jit_compile == "auto"):
        raise ValueError(f'jit_compile={jit_compile!r}: expected True, False or "auto".')
