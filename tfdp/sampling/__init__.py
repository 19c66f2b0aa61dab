"""Who takes part in step t: samplers whose draws are pure functions of (seed, t)."""

from tfdp.sampling.fixed_size import FixedSizeSampler
from tfdp.sampling.full_batch import FullBatchSampler
from tfdp.sampling.poisson import PoissonSampler
from tfdp.sampling.sampler import Sampler, split_into_microbatches
from tfdp.sampling.users import UserExamples

__all__ = [
    "FixedSizeSampler",
    "FullBatchSampler",
    "PoissonSampler",
    "Sampler",
    "UserExamples",
    "split_into_microbatches",
]
