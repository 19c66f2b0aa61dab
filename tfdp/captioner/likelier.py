"""How much likelier captions are beside their own pictures: whether a captioner looks at them."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tfdp.captioner.captioner import Captioner
from tfdp.captioner.config import PAD_ID


def times_likelier(
    model: Captioner, images: Any, token_ids: npt.ArrayLike
) -> npt.NDArray[np.float64]:
    """How many times likelier each caption is beside its own picture than beside the others'.

    Even a captioner whose generated captions are all alike may tell pictures apart: this shows it.

    Args:
        model: the captioner.
        images: float [N, S, S, 3], normalised as in training, two or more.
        token_ids: int [N, L], their captions: start id, ids, end id, filled up with 0.

    Returns:
        [N], the likelihood beside a caption's own picture over the geometric mean of those beside
        the N - 1 others; 1 throughout for a model that does not look at pictures.

    Raises:
        ValueError: there are fewer than two pictures, or not as many captions as pictures.
    """
    tokens = np.asarray(token_ids)
    count = len(tokens)
    if count < 2 or len(images) != count:
        raise ValueError(
            f"Expected two or more pictures with a caption each, got {len(images)} and {count}."
        )
    scores = np.asarray(model.score_captions(images, tokens), np.float64)  # picture x caption
    own = np.diagonal(scores)
    others = (scores.sum(axis=0) - own) / (count - 1)
    return np.exp((others - own) * (tokens[:, 1:] != PAD_ID).sum(axis=1))
