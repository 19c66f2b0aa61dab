"""Private classifiers of Fashion-MNIST from public features: every method at every budget.

Make the features first; 112 pixels are plenty for pictures of 28, which Debian packages:

    apt-get install dataset-fashion-mnist
    python -m launch.extract_features --dataset=fashion_mnist --image_size=112 \\
        --data_path=/usr/share/datasets/fashion-mnist --output=features/fashion_mnist
"""

import ml_collections

from configs.last_layer import last_layer_study


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Returns the study; `:quick` has three methods, `:fine_tune` trains the backbone too.

    `:fine_tune_bias` and the like train one of its parts; see `last_layer_study.study`.
    """
    config = last_layer_study.study(arg)
    config.title = "Fashion-MNIST, EfficientNet-Lite0 features"
    config.features = "features/fashion_mnist"
    config.pictures = {"dataset": "fashion_mnist", "path": "/usr/share/datasets/fashion-mnist"}
    config.num_examples = 60_000
    return config
