"""Private classifiers from public features."""

from tfdp.transfer.backbones import load_backbone
from tfdp.transfer.feature_preparation import Preparation
from tfdp.transfer.feature_table import FeatureTable, as_table
from tfdp.transfer.last_layer import LastLayer
from tfdp.transfer.linear_head import Head
from tfdp.transfer.methods.auto import METHODS, Auto
from tfdp.transfer.methods.class_means import ClassMeans
from tfdp.transfer.methods.feature_covariance import FeatureCovariance, Newton
from tfdp.transfer.methods.full_batch_steps import FullBatch, OneStep, Steps
from tfdp.transfer.methods.least_squares import ClassLeastSquares, LeastSquares
from tfdp.transfer.methods.logistic import Logistic
from tfdp.transfer.methods.method import Method
from tfdp.transfer.methods.whitened import Whitened

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
