"""What attacks that were really made prove about a mechanism: lower bounds on epsilon."""

from tfdp.audit.lower_bound import Audit, epsilon_lower_bound

__all__ = ["Audit", "epsilon_lower_bound"]
