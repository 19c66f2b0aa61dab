"""A captioner small enough to be built in every test."""

from typing import Any

import numpy as np

from tfdp.captioner import Captioner, CaptionerConfig


def tiny_config(**changes: Any) -> CaptionerConfig:
    settings: dict[str, Any] = {
        "image_size": 16,
        "patch_size": 8,
        "encoder_width": 16,
        "encoder_depth": 1,
        "encoder_heads": 2,
        "decoder_width": 12,
        "decoder_depth": 2,
        "decoder_heads": 3,
        "vocab_size": 11,
        "max_length": 7,
        "mlp_ratio": 2,
        "start_id": 1,
        "end_id": 2,
    }
    return CaptionerConfig(**{**settings, **changes})


def tiny_model(dtype: str = "float32", **changes: Any) -> Captioner:
    return Captioner(tiny_config(**changes), dtype=dtype)


def tiny_inputs(batch: int, config: CaptionerConfig | None = None) -> dict[str, np.ndarray]:
    config = tiny_config() if config is None else config
    rng = np.random.default_rng(batch)
    size = config.image_size
    return {
        "image": rng.normal(size=(batch, size, size, 3)).astype(np.float32),
        "tokens": rng.integers(1, config.vocab_size, (batch, config.max_length - 1), np.int32),
    }
