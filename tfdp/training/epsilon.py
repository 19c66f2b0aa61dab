"""Epsilon on the way, for logs and progress bars."""

from __future__ import annotations

from tfdp.privacy import Ledger, PrivacyPlan
from tfdp.privacy.accounting import epsilon


class EpsilonMeter:
    """The privacy spent so far: a valid upper bound that is cheap enough for every step.

    Under one plan it meets the plan's final figure at the last step. Where the ledger holds
    other settings too, it is the Renyi figure of all of them together.
    """

    def __init__(self, plan: PrivacyPlan, ledger: Ledger):
        self._plan = plan
        self._ledger = ledger

    def logs(self) -> dict[str, float]:
        """Returns ``{"epsilon": ...}``, or nothing where the plan has no delta."""
        if self._plan.delta is None:
            return {}
        spent = self._ledger.segments()
        if all(segment.settings == self._plan.settings for segment in spent):
            return {"epsilon": self._plan.epsilon_bound(self._ledger.steps)}
        return {"epsilon": epsilon(spent, self._plan.delta, "rdp").epsilon}
