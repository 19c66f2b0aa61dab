"""Lower bounds on epsilon, from attacks that were made on a mechanism."""

from tfdp.audit.lower_bound import Audit, epsilon_lower_bound

__all__ = ["Audit", "epsilon_lower_bound"]
