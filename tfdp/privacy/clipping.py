"""How examples are clipped, as far as the guarantee and its report are concerned.

What bounds an example's contribution is the plan's clip norm C whatever the way of clipping, and
noise is in proportion to it. The ways differ in what they do below that bound, and one of them
spends part of the budget on choosing C.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

from tfdp import checks

_SHARE_OF_BATCH = 1 / 20
_SHARE_OF_NOISE = 5


@dataclasses.dataclass(frozen=True)
class FlatClipping:
    """``min(1, C / norm)``, the norm taken over all weights jointly (Abadi et al. 2016)."""

    kind: ClassVar[str] = "flat"

    def to_dict(self) -> dict[str, Any]:
        """The way of clipping as plain JSON values."""
        return {"kind": self.kind, **dataclasses.asdict(self)}


@dataclasses.dataclass(frozen=True)
class AutomaticClipping(FlatClipping):
    """``C / (norm + gamma)``: every example has nearly the norm C (Bu et al. 2022, AUTO-S).

    Attributes:
        gamma: keeps examples of vanishing gradient small.
    """

    kind: ClassVar[str] = "automatic"
    gamma: float = 0.01

    def __post_init__(self) -> None:
        checked = checks.positive("gamma", self.gamma)
        object.__setattr__(self, "gamma", checked)


@dataclasses.dataclass(frozen=True)
class PerLayerClipping(FlatClipping):
    """``min(1, C_l / norm_l)`` for every layer l apart (McMahan et al. 2018).

    The sensitivity, which is the plan's clip norm, is ``sqrt(sum_l C_l^2)``.

    Attributes:
        bounds: bounds C_l by the path of a layer, such as ``{"encoder/dense": 0.1}``, kept as
            pairs; every trainable weight must lie under one of them. Empty: every layer with
            weights of its own gets ``C / sqrt(number of layers)``.
    """

    kind: ClassVar[str] = "per_layer"
    bounds: Any = ()

    def __post_init__(self) -> None:
        pairs = self.bounds.items() if isinstance(self.bounds, Mapping) else self.bounds
        checked = tuple((str(path), checks.positive(f"bounds[{path!r}]", c)) for path, c in pairs)
        object.__setattr__(self, "bounds", checked)

    @property
    def sensitivity(self) -> float | None:
        """``sqrt(sum_l C_l^2)``; None where the bounds are shared out of the plan's clip norm."""
        return math.sqrt(sum(c**2 for _, c in self.bounds)) if self.bounds else None

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "bounds": dict(self.bounds)}


@dataclasses.dataclass(frozen=True)
class QuantileClipping(FlatClipping):
    """Flat clipping at a C that follows a quantile of the examples' gradient norms.

    Every step also releases how many of its examples had a norm of at most C, with noise, and
    moves C by ``exp(-learning_rate * (share - quantile))``: Andrew et al. 2021, "Differentially
    Private Learning with Adaptive Clipping". The plan's clip norm is where C starts, and its
    noise multiplier is that of both releases together: the sum gets the more noise for it, see
    `gradient_noise_multiplier`.

    Attributes:
        quantile: the share of examples to leave unclipped, 0 to 1.
        learning_rate: how fast C moves.
        count_noise: standard deviation of the noise on the count. Left out, a twentieth of the
            expected batch, as the authors recommend, and no less than five times the noise
            multiplier, so that the count never costs more than half a percent of the noise.
    """

    kind: ClassVar[str] = "quantile"
    quantile: float = 0.5
    learning_rate: float = 0.2
    count_noise: float | None = None

    def __post_init__(self) -> None:
        share = checks.not_negative("quantile", self.quantile)
        if share > 1:
            raise ValueError(f"quantile must be a share between 0 and 1, got {self.quantile!r}.")
        rate = checks.positive("learning_rate", self.learning_rate)
        object.__setattr__(self, "quantile", share)
        object.__setattr__(self, "learning_rate", rate)
        if self.count_noise is not None:
            noise = checks.positive("count_noise", self.count_noise)
            object.__setattr__(self, "count_noise", noise)

    def count_noise_for(self, batch_size: int, noise_multiplier: float) -> float:
        """Standard deviation of the noise on the count of a step."""
        if self.count_noise is not None:
            return self.count_noise
        return max(_SHARE_OF_BATCH * batch_size, _SHARE_OF_NOISE * noise_multiplier)

    def gradient_noise_multiplier(self, batch_size: int, noise_multiplier: float) -> float:
        """Noise on the sum of gradients in units of C, so that both releases together cost s.

        An example moves the sum by at most C and the count, in which it stands as plus or minus
        a half, by at most a half: ``s^-2 = z^-2 + (2 sigma_b)^-2`` (Andrew et al. 2021,
        Theorem 1).

        Raises:
            ValueError: the count alone would cost more than s.
        """
        if noise_multiplier == 0:
            return 0.0
        count = 2 * self.count_noise_for(batch_size, noise_multiplier)
        if count <= noise_multiplier:
            raise ValueError(
                f"count_noise {self.count_noise!r} must be above half the noise multiplier "
                f"{noise_multiplier:g}, or the count alone costs more than the plan allows."
            )
        return (noise_multiplier**-2 - count**-2) ** -0.5


_KINDS: dict[str, type[FlatClipping]] = {
    way.kind: way for way in (FlatClipping, AutomaticClipping, PerLayerClipping, QuantileClipping)
}
CLIPPINGS = tuple(_KINDS)


def as_clipping(clipping: FlatClipping | Mapping[str, Any] | str | None) -> FlatClipping:
    """The way of clipping that an object, its dictionary or its name stands for.

    Raises:
        TypeError: it is none of these.
        ValueError: there is no such way, or an argument of it is out of range.
    """
    if clipping is None:
        return FlatClipping()
    if isinstance(clipping, FlatClipping):
        return clipping
    if isinstance(clipping, str):
        clipping = {"kind": clipping}
    if not isinstance(clipping, Mapping):
        raise TypeError(f"clipping must be one of {', '.join(CLIPPINGS)}, got {clipping!r}.")
    values = dict(clipping)
    kind = checks.one_of("clipping", values.pop("kind", "flat"), CLIPPINGS)
    try:
        return _KINDS[kind](**values)
    except TypeError as error:
        raise ValueError(f"clipping {kind!r} does not take {sorted(values)}: {error}.") from None


def settled(clip_norm: Any, clipping: Any) -> tuple[Any, FlatClipping]:
    """Clip norm and way of clipping that agree: bounds by layer fix the clip norm.

    Args:
        clip_norm: a number; or bounds by layer, for per-layer clipping.
        clipping: as for `as_clipping`.

    Raises:
        TypeError: a path is no text, or a bound no number.
        ValueError: there is no bound, or it is out of range; or bounds by layer come with another
            clip norm or another way of clipping.
    """
    if isinstance(clip_norm, Mapping):
        if clipping is not None and as_clipping(clipping) != PerLayerClipping():
            raise ValueError("clip_norm by layer means clipping='per_layer': leave clipping out.")
        if not clip_norm:
            raise ValueError("clip_norm={}: expected the bound of one layer or more.")
        for path, bound in clip_norm.items():
            checks.kind(f"the path {path!r} in clip_norm", path, str)
            checks.positive(f"clip_norm[{path!r}]", bound)
        clipping, clip_norm = PerLayerClipping(clip_norm), None
    way = as_clipping(clipping)
    if isinstance(way, PerLayerClipping) and way.sensitivity is not None:
        if clip_norm is not None and not math.isclose(clip_norm, way.sensitivity, rel_tol=1e-9):
            raise ValueError(
                f"clip_norm {clip_norm!r} is not the root of the sum of squares of the bounds by "
                f"layer, {way.sensitivity:g}: give the bounds alone, as clip_norm."
            )
        clip_norm = way.sensitivity
    return clip_norm, way
