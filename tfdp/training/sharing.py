"""What the weights of a model have cost before it was compiled."""

from __future__ import annotations

import keras

from tfdp.optimizers import PrivateOptimizer
from tfdp.privacy import Ledger
from tfdp.privacy.spenders import spending_elsewhere


def with_earlier_spending(model: keras.Model, ledger: Ledger | None) -> Ledger:
    """Returns the ledger, or the model's own, with all that its weights have cost before."""
    earlier = []
    for layer in model._flatten_layers():  # the model itself, and private models inside it
        optimizer = getattr(layer, "optimizer", None)
        if isinstance(optimizer, PrivateOptimizer) and optimizer.ledger is not None:
            earlier.append(optimizer.ledger)
    if ledger is None:
        ledger = earlier.pop(0) if earlier else Ledger()
    for other in earlier:
        if other is not ledger:
            ledger.merge(other)
    for _, content in list(spending_elsewhere(model.variables, ledger)):  # models that share
        ledger.merge(content)
    return ledger
