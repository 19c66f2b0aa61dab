"""How normalised rows are seen by a method: centred, projected, with a bias; never copied."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class View:
    """The affine map x -> [(x - centre) @ projection, bias] of a normalised feature row.

    It is kept as its parts, because a linear head on seen rows is a linear head on plain rows
    (`folded`), and because the norm of a seen row is all that clipping needs of it.

    Attributes:
        centre: `[D]`, public or already private, or None.
        projection: `[D, P]`, public or already private, or None.
        bias: the constant appended as the last coordinate; 0 for none.
    """

    centre: np.ndarray | None = None
    projection: np.ndarray | None = None
    bias: float = 0.0

    def width(self, dim: int) -> int:
        """P: the columns of a seen row, without the bias."""
        return dim if self.projection is None else self.projection.shape[1]

    def folded(self, kernel: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Head `[P, K]`, `[K]` of seen rows -> head `[D, K]`, `[K]` of normalised rows."""
        plain = kernel if self.projection is None else self.projection @ kernel
        offset = self.bias * bias
        if self.centre is not None:
            offset = offset - self.centre @ plain
        return plain, offset

    def unfolded(self, kernel: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The transpose of `folded`: gradients by the plain head -> by the head of seen rows."""
        seen = kernel if self.centre is None else kernel - np.outer(self.centre, bias)
        if self.projection is not None:
            seen = self.projection.T @ seen
        return seen, self.bias * bias
