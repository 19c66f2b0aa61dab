"""Per-example gradients of one weight, held in factored form.

A term stands for the ``[B, *weight.shape]`` per-example gradients of one use of one weight. It
knows their squared norms and their weighted sum without forming them, unless forming them is the
cheaper way. The batch axis always comes first.
"""

from tfdp.clipping.terms.base import ExplicitTerm, Term
from tfdp.clipping.terms.convolution import ConvolutionTerm, convolution_term
from tfdp.clipping.terms.lookup import LookupTerm
from tfdp.clipping.terms.matmul import GroupedMatMulTerm, MatMulTerm
from tfdp.clipping.terms.merge import SumTerm, formed, merge
from tfdp.clipping.terms.units import of_units
from tfdp.clipping.terms.window import Window

__all__ = [
    "ConvolutionTerm",
    "ExplicitTerm",
    "GroupedMatMulTerm",
    "LookupTerm",
    "MatMulTerm",
    "SumTerm",
    "Term",
    "Window",
    "convolution_term",
    "formed",
    "merge",
    "of_units",
]
