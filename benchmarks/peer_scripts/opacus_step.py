"""Opacus in ghost mode on the models of benchmarks.models: a clipped gradient for every line read.

    python opacus_step.py MODEL ROWS

Runs in the environment that benchmarks.peers makes.
"""

import sys
import time

import torch
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers.optimizer_fast_gradient_clipping import DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch_models import MODELS

name, rows = sys.argv[1], int(sys.argv[2])
model, x, y = MODELS[name](rows)
private = GradSampleModuleFastGradientClipping(model, max_grad_norm=1.0, use_ghost_clipping=True)
optimizer = DPOptimizerFastGradientClipping(
    torch.optim.SGD(private.parameters(), lr=0.0),
    noise_multiplier=0.0,
    max_grad_norm=1.0,
    expected_batch_size=rows,
)


class ExampleLoss(torch.nn.CrossEntropyLoss):
    """The mean over an example's tokens; Opacus sets the reduction to "none"."""

    def forward(self, logits, targets):
        losses = super().forward(logits.flatten(0, -2), targets.flatten())
        return losses.reshape(len(logits), -1).mean(1)


loss = DPLossFastGradientClipping(private, optimizer, ExampleLoss(), loss_reduction="mean")
for _ in sys.stdin:
    start = time.perf_counter()
    optimizer.zero_grad()
    loss(private(*x), y).backward()
    optimizer.step()
    print(time.perf_counter() - start, flush=True)
