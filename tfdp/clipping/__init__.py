"""Clipped sums of the per-example gradients of any Keras model.

``ClippedGradient`` (clipped_gradient.py) is the function that training calls. Once for each kind of
inputs it checks the model (model_check.py) and plans how every call of a layer is handled
(survey.py). A single pass (single_pass.py) then turns the calls of layers into terms, by their
rules (rules/). Terms (terms/) know the norms and weighted sums of per-example gradients. What has
no rule is mapped over examples (mapped.py). Norms become clip factors and clipped sums in
factors.py.
"""

from tfdp.clipping.clipped_gradient import ENGINES, Clipped, ClippedGradient
from tfdp.clipping.clipped_sum import ClippedSum, clipped_gradient_sum, per_example_norms
from tfdp.clipping.example_losses import per_example_loss
from tfdp.clipping.examples import Batch
from tfdp.clipping.factors import clip_factors
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
