"""What the studies of last layers have in common."""

import math

import ml_collections

#: A method's own preparation, but for centring and square roots.
_AS_PUBLISHED = {"normalise": "unit", "centre": "none"}


def study(arg: str) -> ml_collections.ConfigDict:
    """The methods and budgets; no setting was chosen by looking at test rows.

    `auto` picks by a rule and has nothing to tune, like `one_step`. Where a method has a grid,
    the best choice on a held-out tenth of the training rows is taken, for each epsilon.
    """
    methods = {
        "auto": {},
        "one_step": {"preparation": _AS_PUBLISHED},
        "one_step_centred": {
            "method": "one_step",
            "settings": {"prototypes": True},
            "preparation": {"normalise": "root", "centre": "private"},
        },
        "class_means": {},
        "least_squares": {},
        "class_least_squares": {},
        "feature_covariance": {},
        "newton": {},
        "full_batch": {},
        "logistic": {"epsilons": (math.inf,)},
    }
    if arg == "quick":
        methods = {name: methods[name] for name in ("auto", "one_step", "logistic")}
    elif arg:
        raise ValueError(f"the config takes no argument or 'quick', got {arg!r}.")
    config = ml_collections.ConfigDict()
    config.train_split = "train"
    config.test_split = "test"
    config.delta = 1e-5
    config.adjacency = "add_or_remove_one"
    config.epsilons = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
    config.seeds = 2 if arg == "quick" else 5
    config.methods = methods
    config.tuning = {"held_out": 0.1, "charge": False, "seed": 1000}
    return config
