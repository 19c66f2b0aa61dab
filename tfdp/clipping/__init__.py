"""Per-example clipped gradient sums: layer rules and engines."""

from tfdp.clipping.api import ClippedSum, clipped_gradient_sum, per_example_norms
from tfdp.clipping.clip import Automatic, Clipping, Flat, PerLayer
from tfdp.clipping.engines import ENGINES
from tfdp.clipping.errors import (
    CancellingError,
    ScalarLossError,
    UnsupportedLayerError,
    WrongRuleError,
)
from tfdp.clipping.forward import Batch
from tfdp.clipping.function import Clipped, ClippedGradient
from tfdp.clipping.losses import per_example_loss
from tfdp.clipping.rules import register_rule
from tfdp.clipping.terms import ExplicitTerm, LookupTerm, MatMulTerm, Term

__all__ = [
    "CancellingError",
    "ENGINES",
    "Automatic",
    "Batch",
    "Clipped",
    "ClippedGradient",
    "ClippedSum",
    "Clipping",
    "ExplicitTerm",
    "Flat",
    "LookupTerm",
    "MatMulTerm",
    "PerLayer",
    "ScalarLossError",
    "Term",
    "UnsupportedLayerError",
    "WrongRuleError",
    "clipped_gradient_sum",
    "per_example_loss",
    "per_example_norms",
    "register_rule",
]
