"""Accounting: the privacy that a series of private steps costs."""

from tfdp.privacy.accounting.choose import (
    ACCOUNTANTS,
    Accountant,
    Guarantee,
    accountant_with_title,
    checked_delta,
    epsilon,
    epsilon_by_accountant,
    epsilon_without_amplification,
)
from tfdp.privacy.accounting.releases import CannotAnswerError, Mechanism, Releases, releases
from tfdp.privacy.accounting.tensorflow_privacy import tensorflow_privacy_statement

__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "CannotAnswerError",
    "Guarantee",
    "Mechanism",
    "Releases",
    "accountant_with_title",
    "checked_delta",
    "epsilon",
    "epsilon_by_accountant",
    "epsilon_without_amplification",
    "releases",
    "tensorflow_privacy_statement",
]
