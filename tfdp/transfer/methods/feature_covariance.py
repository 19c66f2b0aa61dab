"""Steps preconditioned by a private second moment: DP feature covariance and DP Newton."""

from __future__ import annotations

import dataclasses

import numpy as np

from tfdp import checks
from tfdp.transfer.linear_head import Head
from tfdp.transfer.methods.full_batch_steps import Steps, run_steps
from tfdp.transfer.methods.method import Method, Problem, Task, check_moments, moment_ridge
from tfdp.transfer.release_budget import Release


@dataclasses.dataclass(frozen=True)
class FeatureCovariance(Method):
    """Noisy full-batch gradients, preconditioned by one noisy second moment.

    Every step moves the weights against (G / n + ridge I)^-1 g (Mehta, Krichene et al. 2022,
    DP-FC), g a clipped mean gradient with noise.

    Attributes:
        loop: The steps. The preconditioner gives a step its scale; a learning rate of 1 is a
            Newton step of the squared loss.
        clip_norm: C, the largest norm of a seen row in the second moment; None takes their
            typical norm.
        share: Of the budget that the second moment gets; the gradients share the rest.
        ridge: Added to the diagonal of G / n; None takes the rule of `moment_ridge`.
    """

    loop: Steps = Steps(steps=10, optimizer="sgd", learning_rate=1.0)
    clip_norm: float | None = None
    share: float = 0.3
    ridge: float | None = None

    def __post_init__(self) -> None:
        checks.kind("loop", self.loop, Steps)
        check_moments(self.clip_norm, self.ridge)
        checks.share("share", self.share)

    def releases(self, task: Task) -> list[Release]:
        """Returns the second moment and the gradients."""
        return [
            Release("second moment", self.share),
            Release("gradient", 1 - self.share, self.loop.steps),
        ]

    def fit(self, problem: Problem) -> Head:
        """Releases the second moment, then runs the steps."""
        kernel, bias = run_steps(
            problem, self.loop, "gradient", precondition=self._preconditioner(problem)
        )
        return problem.head(kernel, bias, self.loop.fixed_bias)

    def _preconditioner(self, problem: Problem, curvature: float = 1.0) -> np.ndarray:
        clip = self.clip_norm or problem.typical_norm
        moment = problem.moment("second moment", clip) / problem.task.num_examples
        width = len(moment)
        ridge = moment_ridge(problem, self.ridge, "second moment", width, clip)
        return np.linalg.inv(moment + ridge * np.eye(width)) / curvature


@dataclasses.dataclass(frozen=True)
class Newton(FeatureCovariance):
    """Newton's method for one-versus-rest logistic regression, with the first Hessian only.

    At zero weights the Hessian of every class is G / 4 (Mehta, Krichene et al. 2022, DP-Newton,
    which releases one for every class and step), so one second moment serves all of them, and
    later steps keep it. The gradient of one example is clipped over all classes jointly.

    Attributes:
        loop: The steps; the loss is "sigmoid" and the learning rate 1 is Newton's own.
    """

    loop: Steps = Steps(steps=3, optimizer="sgd", learning_rate=1.0, loss="sigmoid")

    def _preconditioner(self, problem: Problem, curvature: float = 0.25) -> np.ndarray:
        return super()._preconditioner(problem, curvature)
