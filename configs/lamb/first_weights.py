"""One full-batch step from zero, near-zero and ordinary random weights, by SGD and by LAMB.

Mehta et al. 2022 start the head from nearly zero. The learning rate is chosen on a held-out tenth
of the training rows; from exact zero SGD needs none.

    python -m launch.finetune_last_layer --config=configs/lamb/first_weights.py \\
        --config.features=features/cifar10 --workdir=runs/first_weights
"""

import ml_collections

from configs.last_layer import last_layer_study

#: Standard deviations; the last one is that of Glorot initialization of a 1280 x 10 kernel.
_SCALES = {"zero": 0.0, "near_zero": 1e-4, "random": 0.04}
_RATES = {"sgd": (1.0, 10.0, 100.0, 1000.0), "lamb": (0.01, 0.1, 1.0, 10.0, 100.0)}


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Returns the study of CIFAR-10."""
    if arg:
        raise ValueError(f"the config takes no argument, got {arg!r}.")
    config = last_layer_study.study("")
    config.title = "CIFAR-10, EfficientNet-Lite0 features: first weights of one step"
    config.features = "features/cifar10"
    config.num_examples = 50_000
    config.epsilons = (1.0, 8.0)
    config.methods = {
        f"{optimizer}_{name}": {
            "method": "one_step",
            "settings": {"init": scale, "optimizer": optimizer},
            "preparation": {"normalize": "unit", "center": "none"},
            "grid": {"learning_rate": rates},
        }
        for optimizer, rates in _RATES.items()
        for name, scale in _SCALES.items()
    }
    return config
