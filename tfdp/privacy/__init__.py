"""Privacy: the plan, its accounting and calibration, the ledger and the report.

What users write is here; everything else is imported from its module. No TensorFlow, except in
`tfdp.privacy.noise`, which is imported where noise is drawn.
"""

from typing import TYPE_CHECKING, Any

from tfdp.privacy.accounting import epsilon
from tfdp.privacy.calibration import (
    batch_size_for_epsilon,
    noise_for_epsilon,
    steps_for_epsilon,
)
from tfdp.privacy.clipping import AutomaticClipping, PerLayerClipping, QuantileClipping
from tfdp.privacy.composition import PUBLIC, compose
from tfdp.privacy.ledger import Ledger
from tfdp.privacy.plan import PrivacyPlan
from tfdp.privacy.report import PrivacyReport
from tfdp.privacy.settings import Segment, StepSettings
from tfdp.privacy.verification import verify

if TYPE_CHECKING:
    from tfdp.privacy.noise import privatize

__all__ = [
    "PUBLIC",
    "AutomaticClipping",
    "Ledger",
    "PerLayerClipping",
    "PrivacyPlan",
    "PrivacyReport",
    "QuantileClipping",
    "Segment",
    "StepSettings",
    "batch_size_for_epsilon",
    "compose",
    "epsilon",
    "noise_for_epsilon",
    "privatize",
    "steps_for_epsilon",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Loads what needs TensorFlow when it is asked for."""
    if name == "privatize":
        from tfdp.privacy.noise import privatize

        return privatize
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
