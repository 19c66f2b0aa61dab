"""Ways to a private linear head."""

from tfdp.transfer.methods.auto import Auto
from tfdp.transfer.methods.base import Method, Problem, Task
from tfdp.transfer.methods.class_means import ClassMeans
from tfdp.transfer.methods.covariance import FeatureCovariance, Newton
from tfdp.transfer.methods.full_batch import FullBatch, OneStep
from tfdp.transfer.methods.least_squares import ClassLeastSquares, LeastSquares
from tfdp.transfer.methods.logistic import Logistic
from tfdp.transfer.methods.steps import Steps
from tfdp.transfer.methods.whitened import Whitened

#: Methods with their default settings, by the names that configs use.
METHODS: dict[str, type[Method]] = {
    "auto": Auto,
    "one_step": OneStep,
    "full_batch": FullBatch,
    "least_squares": LeastSquares,
    "class_least_squares": ClassLeastSquares,
    "feature_covariance": FeatureCovariance,
    "newton": Newton,
    "class_means": ClassMeans,
    "whitened": Whitened,
    "logistic": Logistic,
}

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
    "Problem",
    "Steps",
    "Task",
    "Whitened",
]
