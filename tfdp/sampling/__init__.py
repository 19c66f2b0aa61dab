"""Who takes part in update t: samplers whose draws are pure functions of (seed, update)."""

from tfdp.sampling.base import Sampler
from tfdp.sampling.chunks import split_into_chunks
from tfdp.sampling.fixed_size import FixedSizeSampler
from tfdp.sampling.full_batch import FullBatchSampler
from tfdp.sampling.poisson import PoissonSampler
from tfdp.sampling.users import UserExamples

__all__ = [
    "FixedSizeSampler",
    "FullBatchSampler",
    "PoissonSampler",
    "Sampler",
    "UserExamples",
    "split_into_chunks",
]
