"""What happens to rows before a method sees them: centring, fewer columns, class weights."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tfdp import checks
from tfdp.transfer.normalise import check_normalisation, normalised
from tfdp.transfer.passes import Passes
from tfdp.transfer.spending import Release, Spending
from tfdp.transfer.sums import RowSums
from tfdp.transfer.view import View

CENTRES = ("none", "private", "public")
_COUNTS = "class counts"
_LEAST_SPREAD = 0.2


@dataclasses.dataclass(frozen=True)
class Preparation:
    """Settings that hold for any method. Whatever looks at private rows is paid for.

    Attributes:
        normalise: "unit", "root" or "none"; acts on each row by itself and costs nothing.
        row_norm: rows are clipped to this norm where sums of them are published; after "unit"
            and "root" all have norm 1.
        centre: "none", "private" (a noisy mean is published) or "public" (of public features).
        components: project on so many principal components of the public features.
        balance: publish noisy class counts and weigh classes against imbalance.
        centre_share, counts_share: parts of the whole budget for these two releases.
        bias: constant column that makes the head learn a bias; 0 for none.
    """

    normalise: str = "unit"
    row_norm: float = 1.0
    centre: str = "none"
    components: int | None = None
    balance: bool = False
    centre_share: float = 0.03
    counts_share: float = 0.02
    bias: float = 0.0

    def __post_init__(self) -> None:
        check_normalisation(self.normalise)
        checks.positive("row_norm", self.row_norm)
        checks.one_of("centre", self.centre, CENTRES)
        if self.components is not None:
            checks.positive_int("components", self.components)
        checks.boolean("balance", self.balance)
        checks.share("centre_share", self.centre_share)
        checks.share("counts_share", self.counts_share)
        checks.finite("bias", self.bias)
        spent = math.fsum(release.share for release in self.releases())
        if spent >= 1:
            raise ValueError(
                f"centre_share={self.centre_share} and counts_share={self.counts_share} leave "
                "nothing of the budget for the method: together they must be below 1."
            )

    @property
    def needs_public(self) -> bool:
        """Whether it needs public features."""
        return self.centre == "public" or self.components is not None

    def releases(self) -> list[Release]:
        """What will be published before the method begins."""
        found = []
        if self.centre == "private":
            found.append(Release("centre", self.centre_share))
        if self.balance:
            found.append(Release(_COUNTS, self.counts_share))
        return found

    def view(self, passes: Passes, spending: Spending, public_features: np.ndarray | None) -> View:
        """The view of rows, after its releases.

        Args:
            passes: over the private rows.
            spending: makes the releases.
            public_features: `[M, D]` from the same backbone, for public centring and components.

        Raises:
            ValueError: public features are needed and missing, or do not fit.
        """
        view = View(bias=self.bias)
        if self.needs_public:
            public = self._public(public_features, passes.rows.dim)
            mean = public.mean(axis=0)
            if self.components is not None:
                view = dataclasses.replace(view, projection=_components(public, self.components))
            if self.centre == "public":
                view = dataclasses.replace(view, centre=mean)
        if self.centre == "private":
            sums = RowSums(passes, View())
            (total,) = spending.publish(
                "centre", sums.row_sum(self.row_norm), sensitivity=self.row_norm
            )
            view = dataclasses.replace(view, centre=total / spending.plan.num_examples)
        return view

    def typical_norm(self, view: View) -> float:
        """The root mean square norm of seen rows, as far as `row_norm` and the centre tell.

        Rows of norm r that vary about a mean c have the mean square distance r^2 - |c|^2 from it.
        """
        square = 0.0 if view.centre is None else float(view.centre @ view.centre)
        return math.sqrt(max(self.row_norm**2 - square, _LEAST_SPREAD * self.row_norm**2))

    def weights(self, passes: Passes, spending: Spending) -> np.ndarray | None:
        """Class weights `[K]` that make noisy counts equal, at most 1; None if not balanced.

        A class whose count noise alone could have made has the weight 1, and the others are not
        weighed against it: it may have no examples at all.
        """
        if not self.balance:
            return None
        exact = RowSums(passes, View()).class_counts()
        (counts,) = spending.publish(_COUNTS, exact, sensitivity=1.0)
        stddev = spending.noise_multiplier(_COUNTS)
        clear = counts > 2 * stddev
        counts = at_least(counts, stddev)
        return np.minimum(counts[clear].min(initial=counts.max()) / counts, 1.0)

    def _public(self, features: np.ndarray | None, dim: int) -> np.ndarray:
        if features is None:
            raise ValueError(
                "centre='public' and components need public_features: features [M, D] of public "
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
        return normalised(features, self.normalise).astype(np.float64)


def at_least(counts: np.ndarray, stddev: float) -> np.ndarray:
    """Noisy counts, those that noise alone could have made raised to its size."""
    return np.maximum(counts, max(1.0, 2 * stddev))


def _components(public: np.ndarray, count: int) -> np.ndarray:
    """The directions `[D, count]` in which centred public rows vary most."""
    centred = public - public.mean(axis=0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    return vectors[:, ::-1][:, :count]
