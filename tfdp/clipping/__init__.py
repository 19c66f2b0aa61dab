"""Per-example clipped gradient sums: layer rules and engines."""

from tfdp.clipping.clipped_gradient import ENGINES, Clipped, ClippedGradient
from tfdp.clipping.clipped_sum import ClippedSum, clipped_gradient_sum, per_example_norms
from tfdp.clipping.examples import Batch
from tfdp.clipping.factors import clip_factors
from tfdp.clipping.losses import per_example_loss
from tfdp.clipping.rejections import (
    CancellingError,
    ScalarLossError,
    UnsupportedLayerError,
    WrongRuleError,
)
from tfdp.clipping.rules import register_rule
from tfdp.clipping.terms import ExplicitTerm, LookupTerm, MatMulTerm, Term

__all__ = [
    "ENGINES",
    "Batch",
    "CancellingError",
    "Clipped",
    "ClippedGradient",
    "ClippedSum",
    "ExplicitTerm",
    "LookupTerm",
    "MatMulTerm",
    "ScalarLossError",
    "Term",
    "UnsupportedLayerError",
    "WrongRuleError",
    "clip_factors",
    "clipped_gradient_sum",
    "per_example_loss",
    "per_example_norms",
    "register_rule",
]
