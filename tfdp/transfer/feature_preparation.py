"""What happens to features before a method sees them: centering, projection, class weights."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tfdp import checks
from tfdp.transfer.clipped_sums import ClippedSums, View
from tfdp.transfer.linear_head import NORMALIZATIONS, normalized
from tfdp.transfer.passes import Passes
from tfdp.transfer.release_budget import Release, Spending

CENTERS = ("none", "private", "public")
_COUNTS = "class counts"
_LEAST_SPREAD = 0.2


@dataclasses.dataclass(frozen=True)
class Preparation:
    """Settings that work with any method. Whatever looks at private features uses the budget.

    Attributes:
        normalize: "unit", "root" or "none"; acts on each row by itself and spends nothing.
        row_norm: Rows are clipped to this norm where sums of them are released; after "unit"
            and "root" all have norm 1.
        center: "none", "private" (a noisy mean is released) or "public" (of public features).
        components: Project on so many principal components of the public features.
        balance: Release noisy class counts and weight classes against imbalance.
        center_share, counts_share: Parts of the whole budget for these two releases.
        bias: Constant column that makes the head learn a bias; 0 for none.
    """

    normalize: str = "unit"
    row_norm: float = 1.0
    center: str = "none"
    components: int | None = None
    balance: bool = False
    center_share: float = 0.03
    counts_share: float = 0.02
    bias: float = 0.0

    def __post_init__(self) -> None:
        checks.one_of("normalize", self.normalize, NORMALIZATIONS)
        checks.positive("row_norm", self.row_norm)
        checks.one_of("center", self.center, CENTERS)
        if self.components is not None:
            checks.positive_int("components", self.components)
        checks.boolean("balance", self.balance)
        checks.share("center_share", self.center_share)
        checks.share("counts_share", self.counts_share)
        checks.finite("bias", self.bias)
        spent = math.fsum(release.share for release in self.releases())
        if spent >= 1:
            raise ValueError(
                f"center_share={self.center_share} and counts_share={self.counts_share} leave no "
                "budget for the method: their sum must be below 1."
            )

    @property
    def needs_public(self) -> bool:
        """Whether it needs public features."""
        return self.center == "public" or self.components is not None

    def releases(self) -> list[Release]:
        """Returns what will be released before the method begins."""
        found = []
        if self.center == "private":
            found.append(Release("center", self.center_share))
        if self.balance:
            found.append(Release(_COUNTS, self.counts_share))
        return found

    def view(self, passes: Passes, spending: Spending, public_features: np.ndarray | None) -> View:
        """Returns the view of features, after the releases that it takes.

        Args:
            passes: Over the private features.
            spending: Makes the releases.
            public_features: `[M, D]` from the same backbone, for public centering and components.

        Raises:
            ValueError: Public features are needed and missing, or do not fit.
        """
        view = View(bias=self.bias)
        if self.needs_public:
            public = self._public(public_features, passes.table.dim)
            mean = public.mean(axis=0)
            if self.components is not None:
                view = dataclasses.replace(view, projection=_components(public, self.components))
            if self.center == "public":
                view = dataclasses.replace(view, center=mean)
        if self.center == "private":
            sums = ClippedSums(passes, View())
            (total,) = spending.release(
                "center", sums.row_sum(self.row_norm), sensitivity=self.row_norm
            )
            view = dataclasses.replace(view, center=total / spending.plan.num_examples)
        return view

    def typical_norm(self, view: View) -> float:
        """Returns the root mean square norm of seen rows, as far as `row_norm` and the center tell.

        Rows of norm r that vary about a mean c have the mean square distance r^2 - |c|^2 from it.
        """
        square = 0.0 if view.center is None else float(view.center @ view.center)
        return math.sqrt(max(self.row_norm**2 - square, _LEAST_SPREAD * self.row_norm**2))

    def weights(self, passes: Passes, spending: Spending) -> np.ndarray | None:
        """Returns class weights `[K]`, at most 1, that make noisy counts equal; None if not asked.

        A class whose count could be noise alone has the weight 1, and the others are not weighted
        against it: it may have no examples at all.
        """
        if not self.balance:
            return None
        exact = ClippedSums(passes, View()).class_counts()
        (counts,) = spending.release(_COUNTS, exact, sensitivity=1.0)
        stddev = spending.noise_multiplier(_COUNTS)
        clear = counts > 2 * stddev
        counts = at_least(counts, stddev)
        return np.minimum(counts[clear].min(initial=counts.max()) / counts, 1.0)

    def _public(self, features: np.ndarray | None, dim: int) -> np.ndarray:
        if features is None:
            raise ValueError(
                "center='public' and components need public_features: features [M, D] of public "
                "pictures from the same backbone."
            )
        features = np.asarray(features)
        if features.ndim != 2 or features.shape[1] != dim or not np.isfinite(features).all():
            raise ValueError(
                f"public_features must be finite and of shape [M, {dim}], got {features.shape}."
            )
        if self.components is not None and not 0 < self.components <= min(features.shape):
            raise ValueError(
                f"components must lie in 1..{min(features.shape)} for these public_features, "
                f"got {self.components}."
            )
        return normalized(features, self.normalize).astype(np.float64)


def at_least(counts: np.ndarray, stddev: float) -> np.ndarray:
    """Returns noisy counts; those that could be noise alone are raised to its size."""
    return np.maximum(counts, max(1.0, 2 * stddev))


def _components(public: np.ndarray, count: int) -> np.ndarray:
    """Returns the directions `[D, count]` in which centerd public rows vary most."""
    centerd = public - public.mean(axis=0)
    _, vectors = np.linalg.eigh(centerd.T @ centerd)
    return vectors[:, ::-1][:, :count]
