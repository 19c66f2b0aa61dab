"""Privacy: the plan, its accounting and calibration, the ledger and the report.

No TensorFlow here, except in `tfdp.privacy.noise`, which is imported where noise is drawn.
"""

from tfdp.privacy._report_differences import report_differences
from tfdp.privacy.accounting import (
    ACCOUNTANTS,
    Accountant,
    CannotAnswerError,
    Guarantee,
    epsilon,
    epsilon_by_accountant,
    epsilon_without_amplification,
    tensorflow_privacy_statement,
)
from tfdp.privacy.calibration import (
    batch_size_for_epsilon,
    noise_for_epsilon,
    steps_for_epsilon,
)
from tfdp.privacy.clipping import (
    CLIPPINGS,
    AutomaticClipping,
    FlatClipping,
    PerLayerClipping,
    QuantileClipping,
)
from tfdp.privacy.composition import PUBLIC, ComposedPart, Composition, compose
from tfdp.privacy.groups import epsilon_of_group
from tfdp.privacy.interpretation import expected_coverage, expected_epochs, most_true_positives
from tfdp.privacy.ledger import Ledger, LedgerBusyError, LedgerEntry, LedgerError
from tfdp.privacy.plan import PrivacyPlan, steps_for_epochs
from tfdp.privacy.report import PrivacyReport, build_report
from tfdp.privacy.settings import ADJACENCIES, SAMPLINGS, Segment, StepSettings
from tfdp.privacy.solve import solve_plan
from tfdp.privacy.verification import Verification, verify

__all__ = [
    "ACCOUNTANTS",
    "ADJACENCIES",
    "CLIPPINGS",
    "PUBLIC",
    "SAMPLINGS",
    "Accountant",
    "AutomaticClipping",
    "CannotAnswerError",
    "ComposedPart",
    "Composition",
    "FlatClipping",
    "Guarantee",
    "Ledger",
    "LedgerBusyError",
    "LedgerEntry",
    "LedgerError",
    "PerLayerClipping",
    "PrivacyPlan",
    "PrivacyReport",
    "QuantileClipping",
    "Segment",
    "StepSettings",
    "Verification",
    "batch_size_for_epsilon",
    "build_report",
    "compose",
    "epsilon",
    "epsilon_by_accountant",
    "epsilon_of_group",
    "epsilon_without_amplification",
    "expected_coverage",
    "expected_epochs",
    "most_true_positives",
    "noise_for_epsilon",
    "report_differences",
    "solve_plan",
    "steps_for_epochs",
    "tensorflow_privacy_statement",
    "steps_for_epsilon",
    "verify",
]
