"""A budget that records what would be published, and answers the same whatever the rows."""

import numpy as np

from tfdp.privacy.noise import NoiseKey, NoisyGradients
from tfdp.transfer.last_layer import shared, whole_budget
from tfdp.transfer.methods import Method, Problem, Task
from tfdp.transfer.passes import Passes
from tfdp.transfer.rows import as_rows
from tfdp.transfer.spending import Spending


class Recorder(Spending):
    """Keeps the exact sums and their stated sensitivity; publishes answers of its own.

    Two data sets are then asked the same questions, as the guarantee supposes: what a method does
    next may depend on what was published, and on nothing else.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.asked: list[tuple[str, float, np.ndarray]] = []
        self.divisors: set[float] = set()

    def publish_mean(self, name, sums, *, sensitivity, divisor):
        exact = [np.asarray(value, np.float64) for value in sums]
        flat = np.concatenate([value.ravel() for value in exact])
        self.asked.append((name, sensitivity, flat))
        self.divisors.add(divisor)
        fixed = [np.zeros(value.shape) for value in exact]
        noise = super().publish_mean(name, fixed, sensitivity=sensitivity, divisor=divisor)
        scaled = [np.asarray(g) / self.noise_multiplier(name) * 5 for g in noise.gradients]
        return NoisyGradients([s.astype(np.float32) for s in scaled])


def asked(method: Method, x: np.ndarray, y: np.ndarray, classes: int, examples: int) -> Recorder:
    """What a method asks of rows, with its own preparation."""
    rows = as_rows(x, y, classes)
    plan = whole_budget(examples, None, 1e-5, 3.0, "add_or_remove_one")
    task = Task(examples, classes, rows.dim, 3.0)
    preparation = method.preparation
    recorder = Recorder(plan, shared(preparation, method, task), NoiseKey.from_seed(3))
    passes = Passes(rows, preparation.normalise)
    view = preparation.view(passes, recorder, None)
    weights = preparation.weights(passes, recorder)
    problem = Problem(task, passes, view, weights, preparation.typical_norm(view), recorder)
    method.fit(problem)
    return recorder
