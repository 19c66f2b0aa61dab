"""Small feature tables with known structure."""

import numpy as np


def clusters(
    rows: int, dim: int, classes: int, seed: int = 0, spread: float = 0.5
) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian clusters, one a class: features float32 `[rows, dim]`, labels int32 `[rows]`.

    The centers depend on `dim` and `classes` alone, so that two seeds give train and test.
    """
    centers = np.random.default_rng(99).standard_normal((classes, dim)) + 1.0
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, rows).astype(np.int32)
    noise = generator.standard_normal((rows, dim)) * spread * np.sqrt(dim) / 4
    return (centers[labels] + noise).astype(np.float32), labels
