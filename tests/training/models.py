"""Small models and data that the training tests share."""

import keras
import numpy as np

import tfdp


def classifier(inputs=10, units=16, classes=2):
    """A two-layer classifier with the same weights on every call."""
    keras.utils.set_random_seed(5)
    features = keras.Input((inputs,))
    hidden = keras.layers.Dense(units, activation="relu")(features)
    return keras.Model(features, keras.layers.Dense(classes)(hidden))


def separable(rows=500, inputs=10, seed=0):
    """Features and the sign of the first one."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, inputs)).astype("float32")
    return features, (features[:, 0] > 0).astype("int32")


def compiled(model, plan, optimizer=None, loss=None, seed=7, **kwargs):
    """The model made private and compiled, with SGD of rate 1 by default."""
    model = tfdp.make_private(model)
    loss = loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = optimizer or tfdp.optimizers.DPSGD(1.0, privacy=plan)
    model.compile(optimizer, loss, seed=seed, **kwargs)
    return model


def linear_sum(y_true, y_pred):
    """A loss whose gradient does not depend on the targets: the prediction itself."""
    return keras.ops.sum(y_pred, axis=-1)


def flat_model(inputs, outputs=1, layers=1):
    """``layers`` parallel products with zero weights, summed up."""
    features = keras.Input((inputs,))
    parts = [
        keras.layers.Dense(outputs, use_bias=False, kernel_initializer="zeros", name=f"part{i}")(
            features
        )
        for i in range(layers)
    ]
    return keras.Model(features, parts[0] if layers == 1 else keras.layers.add(parts))
