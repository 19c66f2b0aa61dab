"""Accounting: what a series of private steps costs."""

from tfdp.privacy.accounting.choose import (
    ACCOUNTANTS,
    Accountant,
    Guarantee,
    epsilon,
    epsilon_by_accountant,
    epsilon_without_amplification,
)
from tfdp.privacy.accounting.releases import CannotAnswerError, Mechanism, Releases, releases
from tfdp.privacy.accounting.statement import tensorflow_privacy_statement

__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "CannotAnswerError",
    "Guarantee",
    "Mechanism",
    "Releases",
    "epsilon",
    "epsilon_by_accountant",
    "epsilon_without_amplification",
    "releases",
    "tensorflow_privacy_statement",
]
