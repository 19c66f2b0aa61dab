"""Private classifiers from public features."""

from tfdp.transfer.backbones import load_backbone
from tfdp.transfer.head import Head
from tfdp.transfer.last_layer import LastLayer
from tfdp.transfer.methods import (
    METHODS,
    Auto,
    ClassLeastSquares,
    ClassMeans,
    FeatureCovariance,
    FullBatch,
    LeastSquares,
    Logistic,
    Method,
    Newton,
    OneStep,
    Steps,
    Whitened,
)
from tfdp.transfer.prepare import Preparation
from tfdp.transfer.rows import Rows, as_rows

__all__ = [
    "METHODS",
    "Auto",
    "ClassLeastSquares",
    "ClassMeans",
    "FeatureCovariance",
    "FullBatch",
    "Head",
    "LastLayer",
    "LeastSquares",
    "Logistic",
    "Method",
    "Newton",
    "OneStep",
    "Preparation",
    "Rows",
    "Steps",
    "Whitened",
    "as_rows",
    "load_backbone",
]
