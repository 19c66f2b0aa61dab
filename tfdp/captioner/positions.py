"""The fixed sine-cosine position tables of DP-Cap, in numpy."""

from __future__ import annotations

import numpy as np


def sincos_table(positions: np.ndarray, width: int) -> np.ndarray:
    """One row [all sines | all cosines] for each position.

    Frequencies are 10000^(-i / (width / 2)). The table is rounded to float32, whatever the
    model's precision: it is a constant of the architecture.

    Args:
        positions: positions, any shape; they are taken in row-major order.
        width: channels of a row, even.

    Returns:
        float32 array [positions.size, width].
    """
    half = width // 2
    frequencies = 10000.0 ** (-np.arange(half, dtype=np.float64) / half)
    angles = np.outer(np.asarray(positions, np.float64).reshape(-1), frequencies)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def text_positions(length: int, width: int) -> np.ndarray:
    """The table for a text of `length` tokens: float32 [length, width]."""
    return sincos_table(np.arange(length), width)


def image_positions(side: int, width: int) -> np.ndarray:
    """The table for a class token and `side` x `side` patches, row by row.

    The first half of the channels holds the patch's column, the second half its row. The
    class token's row is zero.

    Returns:
        float32 array [1 + side * side, width].
    """
    rows, columns = np.mgrid[:side, :side]
    patches = np.concatenate(
        [sincos_table(columns, width // 2), sincos_table(rows, width // 2)], axis=1
    )
    return np.concatenate([np.zeros((1, width), np.float32), patches])
