"""A budget that records what would be released, and answers the same whatever the examples."""

import numpy as np

from tfdp.privacy.noise import NoiseKey, NoisyGradients
from tfdp.transfer.feature_table import as_table
from tfdp.transfer.methods.method import Method, Task, prepared, shared_releases
from tfdp.transfer.passes import Passes
from tfdp.transfer.release_budget import Spending, whole_budget


class Recorder(Spending):
    """Keeps the exact sums and their stated sensitivity; releases answers of its own.

    Two datasets are then asked the same questions, as the guarantee supposes: what a method does
    next may depend on what was released, and on nothing else.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.asked: list[tuple[str, float, np.ndarray]] = []
        self.divisors: set[float] = set()

    def release_mean(self, name, sums, *, sensitivity, divisor):
        exact = [np.asarray(value, np.float64) for value in sums]
        flat = np.concatenate([value.ravel() for value in exact])
        self.asked.append((name, sensitivity, flat))
        self.divisors.add(divisor)
        fixed = [np.zeros(value.shape) for value in exact]
        noise = super().release_mean(name, fixed, sensitivity=sensitivity, divisor=divisor)
        scaled = [np.asarray(g) / self.noise_multiplier(name) * 5 for g in noise.gradients]
        return NoisyGradients([s.astype(np.float32) for s in scaled])


def asked(method: Method, x: np.ndarray, y: np.ndarray, classes: int, examples: int) -> Recorder:
    """What a method asks of examples, with its own preparation."""
    table = as_table(x, y, classes)
    plan = whole_budget(examples, None, 1e-5, 3.0)
    task = Task(examples, classes, table.dim, 3.0)
    preparation = method.preparation
    recorder = Recorder(plan, shared_releases(preparation, method, task), NoiseKey.from_seed(3))
    passes = Passes(table, preparation.normalize)
    method.fit(prepared(preparation, task, passes, recorder))
    return recorder
