"""Per-example gradients of one weight, held in factored form.

A term stands for the ``[B, *weight.shape]`` per-example gradients of one use of one weight. It
knows their squared norms and their weighted sum without forming them, unless forming them is
cheaper: norms are ghost norms (Li et al. 2021) and sums come from the layer's inputs and output
gradients, the book-keeping of Bu et al. 2023. The batch axis always comes first.
"""

from tfdp.clipping.terms.convolution_terms import ConvolutionTerm, convolution_term
from tfdp.clipping.terms.joined_terms import SumTerm, merge
from tfdp.clipping.terms.matmul_terms import GroupedMatMulTerm, LookupTerm, MatMulTerm
from tfdp.clipping.terms.term import ExplicitTerm, Term, select_examples
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
    "merge",
    "select_examples",
]
