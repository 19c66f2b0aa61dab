"""What the studies of last layers have in common."""

import math
from typing import Any

import ml_collections
from ml_collections import config_dict

#: A method's own preparation, but for centering and square roots.
_AS_PUBLISHED = {"normalize": "unit", "center": "none"}
#: Private training of the backbone, by part; "norm" is for backbones that have such layers.
_PARTS = ("none", "bias", "lora", "last_block", "all")


def study(arg: str) -> ml_collections.ConfigDict:
    """The methods and budgets; no setting was chosen by looking at test rows.

    `auto` picks by a rule and has nothing to tune, like `one_step`. Where a method has a grid,
    the best choice on a held-out tenth of the training rows is taken, for each epsilon.

    Args:
        arg: "" for all methods on features; "quick" for three of them; "fine_tune" for private
            training of the backbone, part by part, from the pictures themselves, and
            "fine_tune_bias" or another of `tfdp.transfer.fine_tuning.PARTS` for one of the parts.
    """
    config = ml_collections.ConfigDict()
    config.train_split = "train"
    config.test_split = "test"
    config.delta = 1e-5
    config.adjacency = "add_or_remove_one"
    config.epsilons = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0, math.inf)
    config.seeds = 5
    config.methods = _methods()
    if arg == "quick":
        config.seeds = 2
        config.methods = {name: _methods()[name] for name in ("auto", "one_step", "logistic")}
    elif arg.startswith("fine_tune"):
        one = arg.removeprefix("fine_tune").removeprefix("_")
        config.seeds, config.epsilons = 1, (8.0,)
        config.methods = {f"fine_tune_{p}": _fine_tuning(p) for p in ((one,) if one else _PARTS)}
    elif arg:
        raise ValueError(
            f"the config takes no argument, 'quick', 'fine_tune' or 'fine_tune_PART', got {arg!r}."
        )
    config.tuning = {"held_out": 0.1, "charge": False, "seed": 1000}
    # Where fine-tuning and export find the backbone; "" and 0 mean its own.
    config.backbone = {"name": "efficientnet_lite0", "weights": "", "image_size": 0}
    config.pictures = {"dataset": "", "path": ""}
    # What is exported has noise that nobody can repeat; a seed of its own is for tests.
    config.export = {"method": "", "epsilon": 1.0, "seed": config_dict.placeholder(int)}
    return config


def _methods() -> dict[str, Any]:
    return {
        "auto": {},
        "one_step": {"preparation": _AS_PUBLISHED},
        "one_step_centred": {
            "method": "one_step",
            "settings": {"prototypes": True},
            "preparation": {"normalize": "root", "center": "private"},
        },
        "class_means": {},
        "least_squares": {},
        "class_least_squares": {},
        "feature_covariance": {},
        "newton": {},
        "full_batch": {},
        "logistic": {"epsilons": (math.inf,)},
    }


def _fine_tuning(part: str) -> dict[str, Any]:
    settings = {"part": part, "batch_size": 1024, "epochs": 3.0}
    return {"method": "fine_tune", "settings": settings}
