"""The larger run: a private captioner on all permissively licensed icons, at 64 pixels.

Its 1,000 steps of 16,384 pictures are 2.3e16 floating-point operations: a run for a GPU, and some
days' work for two CPU cores. The pictures are rendered first, which takes half an hour:

    npm pack @iconify/json@2.2.535
    python -m launch.prepare_data --dataset=icons --source=iconify-json-2.2.535.tgz --output=DIR
    python -m launch.train_captioner --config=configs/icons.py --config.data.path=DIR --workdir=...
"""

import ml_collections
from ml_collections import config_dict


def get_config() -> ml_collections.ConfigDict:
    """Returns the settings; any of them can be changed with ``--config.a.b=value``."""
    config = ml_collections.ConfigDict()
    config.privacy = {
        "num_examples": 274_799,  # training pairs that launch.prepare_data makes, a public number
        "batch_size": 16_384,
        "steps": 1000,
        "clip_norm": 1.0,
        "epsilon": 8.0,
        "delta": 1e-6,
        "noise_multiplier": config_dict.placeholder(float),
    }
    config.model = {
        "image_size": 64,
        "patch_size": 8,
        "encoder_width": 192,
        "encoder_depth": 6,
        "encoder_heads": 3,
        "decoder_width": 192,
        "decoder_depth": 3,
        "decoder_heads": 3,
        "max_length": 16,
    }
    config.optimizer = {
        "name": "adamw",
        "learning_rate": 1e-3,
        "weight_decay": 0.005,
        "beta_1": 0.9,
        "beta_2": 0.95,
        "warmup_steps": 50,
        "decay_steps": 1000,
    }
    config.data = {
        "dataset": "image_text",
        "path": "",
        "vocabulary": "",  # the packaged one
        "normalization": "half",
        "augment": True,
        "crop_scale": (0.6, 1.0),
        "flip": False,
    }
    config.initialization = {"head_bias": "public_words"}  # or "zeros"
    config.training = {
        "microbatch_size": 128,
        "seed": config_dict.placeholder(int),
        "log_every": 10,
        "checkpoint_seconds": 300.0,
    }
    config.evaluation = {
        "batch_size": 256,
        "every": 10,
        "examples": 4096,
        "probe_examples": 16_384,
        "shots": (1, 5, 10),
        "draws": 5,
    }
    return config.lock()
