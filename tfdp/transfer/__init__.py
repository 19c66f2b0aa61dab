"""Private classifiers from public features."""

from tfdp.transfer.backbones import load_backbone
from tfdp.transfer.feature_preparation import Preparation
from tfdp.transfer.feature_table import FeatureTable, as_table
from tfdp.transfer.last_layer import LastLayer
from tfdp.transfer.linear_head import Head
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

__all__ = [
    "METHODS",
    "Auto",
    "ClassLeastSquares",
    "ClassMeans",
    "FeatureCovariance",
    "FeatureTable",
    "FullBatch",
    "Head",
    "LastLayer",
    "LeastSquares",
    "Logistic",
    "Method",
    "Newton",
    "OneStep",
    "Preparation",
    "Steps",
    "Whitened",
    "as_table",
    "load_backbone",
]
