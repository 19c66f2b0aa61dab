"""One training run under a strategy, printed as JSON: ``python -m ... STRATEGY CASE``."""

import json
import sys

import keras
import numpy as np

import tfdp
from tests.training.models import classifier, compiled, flat_model, linear_sum, separable
from tfdp.privacy.noise import NoiseKey
from tfdp.sampling import PoissonSampler


def train(strategy, noise=0.0):
    features, labels = separable(100)
    features[::9] = np.nan  # on some replicas of some microbatches
    plan = tfdp.PrivacyPlan(100, 2, 40, 0.5, noise_multiplier=noise, delta=1e-5)
    with strategy.scope():
        optimizer = tfdp.optimizers.DPSGD(0.5, momentum=0.5, privacy=plan)
        model = compiled(
            classifier(), plan, optimizer, seed=8, microbatch_size=2, metrics=["accuracy"]
        )
    history = model.fit(features, labels, epochs=1, steps_per_epoch=40, verbose=0)
    sampler = PoissonSampler(100, 0.02, NoiseKey.from_seed(8).child("sampling").as_int())
    report = model.privacy_report().to_dict()
    return {
        "weights": np.concatenate([w.ravel() for w in model.get_weights()]).tolist(),
        "loss": history.history["loss"][-1],
        "accuracy": history.history["accuracy"][-1],
        "steps": model.ledger.steps,
        "settings": model._private.fingerprint,
        "report": {k: report[k] for k in ("epsilon", "sampling_probability", "steps", "counts")},
        "drawn": [sampler.count(step) for step in range(40)],
    }


def half(strategy):
    """An epoch in float16."""
    keras.config.set_dtype_policy("mixed_float16")
    plan = tfdp.PrivacyPlan(500, 50, 10, 0.5, noise_multiplier=0.0, delta=1e-5)
    with strategy.scope():
        optimizer = tfdp.optimizers.DPSGD(0.5, privacy=plan)
        model = compiled(classifier(), plan, optimizer, seed=8)
    before = model.get_weights()
    model.fit(*separable(), verbose=0)
    moved = [a - b for a, b in zip(model.get_weights(), before, strict=True)]
    return {"moved": np.concatenate([m.ravel() for m in moved]).tolist()}


def noise(strategy, secure=False):
    """Weights after one step of pure noise; secure noise comes from entropy."""
    plan = tfdp.PrivacyPlan(256, 64, 1, 2.0, noise_multiplier=1.5, delta=1e-5, secure=secure)
    with strategy.scope():
        seed = {"seed": None} if secure else {}
        model = compiled(flat_model(1000, 1000), plan, loss=linear_sum, **seed)
    model.fit(np.zeros((256, 1000), "float32"), np.zeros(256, "float32"), verbose=0)
    copies = strategy.experimental_local_results(model.trainable_variables[0].value)
    copies = [copy.numpy() for copy in copies]
    return {
        "sum": float(copies[0].sum(dtype="float64")),
        "deviation": float(copies[0].std()),
        "replica_spread": float(max(np.abs(copy - copies[0]).max() for copy in copies)),
    }


def dropout(strategy):
    """Half of the features are dropped; the kernel starts at zero and moves by what was kept."""
    plan = tfdp.PrivacyPlan(64, 64, 1, 100.0, noise_multiplier=0.0, delta=1e-5)
    with strategy.scope():
        features = keras.Input((200,))
        kept = keras.layers.Dropout(0.5)(features)
        head = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model = compiled(keras.Model(features, head(kept)), plan, loss=linear_sum)
    model.fit(np.ones((64, 200), "float32"), np.zeros(64, "float32"), verbose=0)
    copies = strategy.experimental_local_results(model.trainable_variables[0].value)
    copies = [copy.numpy().ravel() for copy in copies]
    return {
        "moved": copies[0].tolist(),
        "replica_spread": float(max(np.abs(copy - copies[0]).max() for copy in copies)),
    }


if __name__ == "__main__":
    chosen = tfdp.choose_strategy(sys.argv[1])
    result = {"train": train, "half": half, "noise": noise, "dropout": dropout}[sys.argv[2]](chosen)
    print(json.dumps({"replicas": chosen.num_replicas_in_sync, **result}))
