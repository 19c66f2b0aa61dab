"""The one door to tensorflow-privacy: its accountants, and its own privacy statement.

Importing the package loads estimators that TensorFlow no longer has. Its documented switch for
stand-alone use, set here and nowhere else, leaves the analysis code, which is all we need.
"""

from __future__ import annotations

import math
import sys

sys.skip_tf_privacy_import = True  # type: ignore[attr-defined]

from tensorflow_privacy.privacy.analysis.compute_dp_sgd_privacy_lib import (  # noqa: E402
    AccountantType,
    compute_dp_sgd_privacy_statement,
)

from tfdp.privacy.settings import Segment  # noqa: E402

__all__ = ["AccountantType", "tensorflow_privacy_statement"]


def tensorflow_privacy_statement(segment: Segment, delta: float) -> str | None:
    """Returns the statement of `compute_dp_sgd_privacy_statement` on one segment.

    It speaks of add-or-remove-one and gives both the figure for Poisson sampling and the one
    for a use of every example once an epoch. It has no words for replacement, for an unknown
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
    """Returns passes over the data for which the statement's own ceil(epochs / q) is the steps."""
    q = segment.settings.sampling_probability
    epochs = segment.steps * q
    while math.ceil(epochs / q) > segment.steps:
        epochs = math.nextafter(epochs, 0.0)
    return epochs
