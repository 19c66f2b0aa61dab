"""Opacus in ghost mode on a last layer: one clipped full-batch gradient for every line read.

Runs in the environment that benchmarks.peers makes.
"""

import sys
import time

import numpy as np
import torch
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers.optimizer_fast_gradient_clipping import DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

data = np.load(sys.argv[1])
x, y = torch.from_numpy(data["x"]), torch.from_numpy(data["y"])
clip = float(data["clip"])
model = GradSampleModuleFastGradientClipping(
    torch.nn.Linear(x.shape[1], int(data["classes"])),
    max_grad_norm=clip,
    use_ghost_clipping=True,
)
optimizer = DPOptimizerFastGradientClipping(
    torch.optim.SGD(model.parameters(), lr=1.0),
    noise_multiplier=3.73,
    max_grad_norm=clip,
    expected_batch_size=len(x),
)
loss = DPLossFastGradientClipping(
    model, optimizer, torch.nn.CrossEntropyLoss(reduction="mean"), loss_reduction="mean"
)
for _ in sys.stdin:
    start = time.perf_counter()
    optimizer.zero_grad()
    loss(model(x), y).backward()
    optimizer.step()
    print(time.perf_counter() - start, flush=True)
