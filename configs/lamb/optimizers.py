"""SGD, momentum, Adam and LAMB on a private head, over batch sizes and epsilons.

The study of Mehta et al. 2022: every run makes the same expected number of passes, so a larger
batch means fewer steps, each with less noise for its size. All begin with small random weights of
the same size and come to rest by a cosine. The learning rate is chosen on a held-out tenth of the
training rows, for each optimizer, batch size and epsilon; the results say what that cost, and
`--config.tuning.charge=True` pays for it out of the budget. One seed took twelve minutes of CPU
time; `--config.seeds=5` gives deviations.

    python -m launch.finetune_last_layer --config=configs/lamb/optimizers.py \\
        --config.features=features/cifar10 --workdir=runs/lamb
"""

import ml_collections

from configs.last_layer import last_layer_study

#: By optimizer, on rows of unit norm: four each. A step of LAMB is a part of the weights' length,
#: so that the range that can be of use is known beforehand, and narrower.
_RATES = {
    "sgd": (1.0, 10.0, 100.0, 1000.0),
    "momentum": (0.1, 1.0, 10.0, 100.0),
    "adam": (0.01, 0.1, 1.0, 10.0),
    "lamb": (0.03, 0.1, 0.3, 1.0),
}
_BATCHES = (1_000, 10_000, 50_000)
_ALIKE = {"epochs": 10.0, "init": 0.03, "rate_schedule": "cosine"}


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Returns the study of CIFAR-10."""
    if arg:
        raise ValueError(f"the config takes no argument, got {arg!r}.")
    config = last_layer_study.study("")
    config.title = "CIFAR-10, EfficientNet-Lite0 features: optimizer and batch size"
    config.features = "features/cifar10"
    config.num_examples = 50_000
    config.epsilons = (1.0, 8.0)
    config.seeds = 1
    config.methods = {
        f"{optimizer}_{batch}": {
            "method": "sampled_head",
            "settings": {"optimizer": optimizer, "batch_size": batch, **_ALIKE},
            "grid": {"learning_rate": rates},
        }
        for optimizer, rates in _RATES.items()
        for batch in _BATCHES
    }
    return config
