"""Random bits as a pure function of (seed, update)."""

import secrets

import numpy as np

from tfdp import checks

_SEED_BITS = 128


def as_seed(seed: int | None) -> int:
    """Returns a seed of 128 bits: the one given, or fresh entropy of the operating system.

    Amplification by sampling holds only while nobody else can tell who was drawn, so a seed
    that was not asked for must not be guessable.
    """
    if seed is None:
        return secrets.randbits(_SEED_BITS)
    seed = checks.whole("seed", seed)
    if not 0 <= seed < 2**_SEED_BITS:
        raise ValueError(f"seed must be in [0, 2**{_SEED_BITS}), got {seed}.")
    return seed


def generator(seed: int, update: int) -> np.random.Generator:
    """Returns the random number generator of one step.

    Philox is keyed by the seed; the number of the update fills the upper half of its 256-bit
    counter, so that the streams of two steps are 2**128 blocks apart and never meet.
    """
    return np.random.Generator(
        np.random.Philox(key=seed, counter=checks.non_negative_int("update", update) << 128)
    )
