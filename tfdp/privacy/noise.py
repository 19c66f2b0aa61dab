"""Gaussian noise drawn once per step, from keys that never repeat.

Nothing is stored but a key and a step: the seed of the noise of one weight in one step is a
cryptographic hash of (key, run, step, weight), so draws are independent across weights, steps
and runs, and equal on every replica.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import secrets
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfdp.privacy.discrete_gaussian import discrete_gaussian


@dataclasses.dataclass(frozen=True)
class NoiseKey:
    """Key of a run's noise.

    Attributes:
      secret: 16 bytes; whoever knows them can remove the noise again.
      fixed: Whether the key comes from a seed that someone chose, which is for tests only.
    """

    secret: bytes = dataclasses.field(repr=False)
    fixed: bool = False

    @classmethod
    def from_entropy(cls) -> NoiseKey:
        """Returns a key from the operating system's entropy."""
        return cls(secrets.token_bytes(16))

    @classmethod
    def from_seed(cls, seed: int) -> NoiseKey:
        """Returns a reproducible key: not private against anyone who can guess the seed."""
        return cls(hashlib.blake2b(f"tfdp seed {seed}".encode(), digest_size=16).digest(), True)

    def child(self, purpose: str) -> NoiseKey:
        """Returns an independent key, for example for the sampling of the same run."""
        digest = hashlib.blake2b(purpose.encode(), key=self.secret, digest_size=16).digest()
        return NoiseKey(digest, self.fixed)

    def as_int(self) -> int:
        """Returns the key as a 128-bit integer."""
        return int.from_bytes(self.secret, "little")

    def seeds(self, step: int, count: int) -> np.ndarray:
        """Returns the seeds of ``count`` weights in a step, ``[count, 2]`` int64."""
        digests = [
            hashlib.blake2b(f"{step}/{i}".encode(), key=self.secret, digest_size=16).digest()
            for i in range(count)
        ]
        return np.frombuffer(b"".join(digests), dtype="<i8").reshape(count, 2).astype(np.int64)

    def integers(self, step: int, weight: int, shape: Sequence[int], deviation: int) -> np.ndarray:
        """Returns the grid noise of one weight in a step: int64, discrete Gaussian."""
        name = f"grid/{step}/{weight}".encode()
        seed = hashlib.blake2b(name, key=self.secret, digest_size=32).digest()
        return discrete_gaussian(math.prod(shape), deviation, seed).reshape(shape)


class NoisyGradients(NamedTuple):
    """A noised mean gradient: the only thing that a private optimizer applies.

    Attributes:
      gradients: One tensor per trainable variable.
    """

    gradients: list[tf.Tensor]


def privatize(
    clipped_sums: Sequence[tf.Tensor],
    clip_norm: float,
    noise_multiplier: float,
    expected_batch_size: float,
    seeds: tf.Tensor,
) -> NoisyGradients:
    """Adds noise of standard deviation ``noise_multiplier * clip_norm`` and takes the mean.

    Args:
      clipped_sums: Sums over *all* microbatches and replicas of a step.
      clip_norm: Sensitivity C of the sum under adding or removing one example.
      noise_multiplier: Noise standard deviation in units of C.
      expected_batch_size: The divisor: a public constant, never the realized batch size.
      seeds: ``[len(clipped_sums), 2]`` int64, from ``NoiseKey.seeds`` of this step.

    Returns:
      ``(sum + N(0, (noise_multiplier * clip_norm)^2)) / expected_batch_size``, in at least
      float32 (Abadi et al. 2016, Algorithm 1, with the expected batch as divisor).
    """
    stddev = noise_multiplier * clip_norm
    noisy = []
    for i, total in enumerate(clipped_sums):
        total = total if total.dtype == tf.float64 else tf.cast(total, tf.float32)
        noise = tf.random.stateless_normal(total.shape, seeds[i], dtype=total.dtype)
        noisy.append((total + stddev * noise) / expected_batch_size)
    return NoisyGradients(noisy)


def privatize_on_grid(
    clipped_sums: Sequence[tf.Tensor],
    noise: Sequence[tf.Tensor],
    step: float,
    expected_batch_size: float,
) -> NoisyGradients:
    """Rounds sums to a grid, adds integer noise and takes the mean; see `tfdp.privacy.grid`.

    Args:
      clipped_sums: Sums over *all* microbatches and replicas of a step.
      noise: One int64 tensor per sum, from ``NoiseKey.integers``, in steps of the grid.
      step: The grid's step, a power of two.
      expected_batch_size: The divisor: a public constant, never the realized batch size.

    Returns:
      ``step * (round(sum / step) + noise) / expected_batch_size``, in at least float32. Before
      the division every number is a multiple of ``step``: what float32 cannot hold is rounded
      after the noise, to a multiple of a larger power of two.
    """
    noisy = []
    for total, integers in zip(clipped_sums, noise, strict=True):
        total = total if total.dtype == tf.float64 else tf.cast(total, tf.float32)
        # Division by a power of two is exact. The limit keeps the integers in range.
        steps = tf.clip_by_value(tf.round(total / step), -(2.0**61), 2.0**61)
        noised = tf.cast(steps, tf.int64) + integers
        noisy.append(tf.cast(noised, total.dtype) * step / expected_batch_size)
    return NoisyGradients(noisy)
