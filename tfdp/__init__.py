"""Differentially private training for TensorFlow and Keras.

One plan fixes sampling, clipping, noise and accounting, and everything else is Keras::

    plan = tfdp.PrivacyPlan(num_examples=50_000, batch_size=4096, steps=500,
                            clip_norm=1.0, epsilon=8.0, delta=1e-5)
    model = tfdp.make_private(keras_model)
    model.compile(optimizer=tfdp.optimizers.DPAdamW(1e-3, privacy=plan), loss=...)
    model.fit(x, y)
    print(model.privacy_report())
"""

from tfdp import clipping, data, models, optimizers, privacy, sampling, training
from tfdp.privacy import PrivacyPlan
from tfdp.training import DPModel, choose_strategy, make_private

__version__ = "0.1.0"

__all__ = [
    "DPModel",
    "PrivacyPlan",
    "__version__",
    "choose_strategy",
    "clipping",
    "data",
    "make_private",
    "models",
    "optimizers",
    "privacy",
    "sampling",
    "training",
]
