"""Differentially private training for TensorFlow and Keras.

One plan fixes sampling, clipping, noise and accounting, and everything else is Keras::

    plan = tfdp.PrivacyPlan(num_examples=50_000, batch_size=4096, steps=500,
                            clip_norm=1.0, epsilon=8.0, delta=1e-5)
    model = tfdp.make_private(keras_model)
    model.compile(optimizer=tfdp.optimizers.DPAdamW(1e-3, privacy=plan), loss=...)
    model.fit(x, y)
    print(model.privacy_report())

`tfdp.transfer` trains private classifiers on features of a public backbone, `tfdp.captioner`
trains image captioners, and `tfdp.evaluation`, `tfdp.audit` and `tfdp.export` evaluate, audit and
serve trained models. These five are imported on first use.
"""

import importlib
from types import ModuleType

from tfdp import clipping, data, optimizers, privacy, sampling, training
from tfdp.privacy import PrivacyPlan
from tfdp.training import DPModel, choose_strategy, make_private

__version__ = "0.1.0"

# They load keras_hub, scikit-learn or matplotlib, which takes seconds that not every user needs.
_LOADED_ON_USE = ("audit", "captioner", "evaluation", "export", "transfer")

__all__ = [
    "DPModel",
    "PrivacyPlan",
    "__version__",
    "audit",
    "captioner",
    "choose_strategy",
    "clipping",
    "data",
    "evaluation",
    "export",
    "make_private",
    "optimizers",
    "privacy",
    "sampling",
    "training",
    "transfer",
]


def __getattr__(name: str) -> ModuleType:
    """Imports the rooms that are loaded on first use."""
    if name in _LOADED_ON_USE:
        try:
            return importlib.import_module(f"tfdp.{name}")
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"tfdp.{name} needs {error.name}, which is not installed. "
                "Run: pip install '.[captioner,data]' (in the repository of tfdp).",
                name=error.name,
            ) from error
    raise AttributeError(f"module 'tfdp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LOADED_ON_USE})
