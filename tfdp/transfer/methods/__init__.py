"""Methods that train a private linear head, one file a method."""

from tfdp.transfer.methods.auto import METHODS, Auto, named_method
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
    "FullBatch",
    "LeastSquares",
    "Logistic",
    "Method",
    "Newton",
    "OneStep",
    "Steps",
    "Whitened",
    "named_method",
]
