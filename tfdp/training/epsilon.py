"""Epsilon on the way, for logs."""

from __future__ import annotations

from tfdp.privacy import Ledger, PrivacyPlan


class EpsilonMeter:
    def __init__(self, plan: PrivacyPlan, ledger: Ledger):
        self._plan = plan
        self._ledger = ledger

    def value(self) -> float:
        return self._plan.epsilon_after(self._ledger.updates)
