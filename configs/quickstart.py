"""The main job: a private captioner on the packaged icons, in a few minutes on two cores."""

import ml_collections
from ml_collections import config_dict


def get_config() -> ml_collections.ConfigDict:
    """Returns the settings; any of them can be changed with ``--config.a.b=value``."""
    config = ml_collections.ConfigDict()
    config.privacy = {
        "num_examples": 13_575,  # training pairs of the packaged icons, a public number
        "batch_size": 4096,
        "steps": 40,
        "clip_norm": 1.0,
        "epsilon": 8.0,
        "delta": 1e-5,
        "noise_multiplier": config_dict.placeholder(float),
    }
    config.model = {
        "image_size": 32,
        "patch_size": 8,
        "encoder_width": 64,
        "encoder_depth": 3,
        "encoder_heads": 4,
        "decoder_width": 64,
        "decoder_depth": 2,
        "decoder_heads": 4,
        "max_length": 12,
    }
    config.optimizer = {
        "name": "adamw",
        "learning_rate": 1e-2,
        "weight_decay": 0.005,
        "beta_1": 0.9,
        "beta_2": 0.95,
        "warmup_steps": 4,
        "decay_steps": 41,
    }
    config.data = {
        "dataset": "packaged_icons",
        "path": "",
        "vocabulary": "",  # the packaged one
        "normalization": "half",
        "augment": False,
        "crop_scale": (0.6, 1.0),
        "flip": False,
    }
    config.initialization = {"head_bias": "public_words"}  # or "zeros"
    config.training = {
        "microbatch_size": 256,
        "seed": config_dict.placeholder(int),
        "log_every": 2,
        "checkpoint_seconds": 30.0,
    }
    config.evaluation = {
        "batch_size": 256,
        "every": 5,
        "examples": 1716,
        "probe_examples": 4096,
        "shots": (1, 5, 10),
        "draws": 5,
    }
    return config.lock()
