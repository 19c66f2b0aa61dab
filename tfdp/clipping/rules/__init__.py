"""How each kind of layer yields the per-example gradients of its weights.

Importing the package registers the rules of the built-in layers.
"""

from tfdp.clipping.rules import convolution, dense, embedding, normalization, recurrent
from tfdp.clipping.rules.registry import Rule, Tap, register_rule, rule_for

__all__ = [
    "Rule",
    "Tap",
    "convolution",
    "dense",
    "embedding",
    "normalization",
    "recurrent",
    "register_rule",
    "rule_for",
]
