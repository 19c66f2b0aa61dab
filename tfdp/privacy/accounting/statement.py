"""tensorflow-privacy's own privacy statement."""

from __future__ import annotations

import math

from tfdp.privacy.accounting._tensorflow_privacy import (
    AccountantType,
    compute_dp_sgd_privacy_statement,
)
from tfdp.privacy.settings import Segment


def tensorflow_privacy_statement(segment: Segment, delta: float) -> str | None:
    """The statement of `compute_dp_sgd_privacy_statement` on one segment.

    It speaks of add-or-remove-one and gives both the figure for Poisson sampling and the one
    for a use of every record once an epoch. It has no words for replacement, for an unknown
    order or for zero noise, and its own divergence rounds to less than zero at enormous noise:
    None then.
    """
    settings = segment.settings
    if not segment.steps or not settings.noise_multiplier:
        return None
    if settings.adjacency == "replace_one" or settings.sampling == "arbitrary":
        return None
    try:
        return compute_dp_sgd_privacy_statement(
            number_of_examples=settings.num_examples,
            batch_size=settings.batch_size,
            num_epochs=_epochs(segment),
            noise_multiplier=settings.noise_multiplier / settings.sensitivity,
            delta=delta,
            used_microbatching=False,
            accountant_type=AccountantType.RDP,
        )
    except ValueError as error:
        if "cannot be negative" in str(error):
            return None
        raise


def _epochs(segment: Segment) -> float:
    """Passes over the data, such that the statement's own ceil(epochs / q) gives the steps."""
    rate = segment.settings.sampling_probability
    epochs = segment.steps * rate
    while math.ceil(epochs / rate) > segment.steps:
        epochs = math.nextafter(epochs, 0.0)
    return epochs
