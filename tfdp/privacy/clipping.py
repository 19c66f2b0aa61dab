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

_PART_OF_BATCH = 1 / 20
_TIMES_THE_NOISE = 5


@dataclasses.dataclass(frozen=True)
class FlatClipping:
    """``min(1, C / norm)``, the norm taken over all weights jointly (Abadi et al. 2016)."""

    kind: ClassVar[str] = "flat"

    def to_dict(self) -> dict[str, Any]:
        """Returns the way of clipping as plain JSON values."""
        return {"kind": self.kind, **dataclasses.asdict(self)}


@dataclasses.dataclass(frozen=True)
class AutomaticClipping(FlatClipping):
    """``C / (norm + gamma)``: every example has nearly the norm C (Bu et al. 2022, AUTO-S).

    Attributes:
        gamma: Keeps examples of vanishing gradient small.
    """

    kind: ClassVar[str] = "automatic"
    gamma: float = 0.01

    def __post_init__(self) -> None:
        checked = checks.positive("gamma", self.gamma)
        object.__setattr__(self, "gamma", checked)


@dataclasses.dataclass(frozen=True)
class PerLayerClipping(FlatClipping):
    """``min(1, C_l / norm_l)`` for every layer l by itself (McMahan et al. 2018).

    The sensitivity, which is the plan's clip norm, is ``sqrt(sum_l C_l^2)``.

    Attributes:
        bounds: Clip norms C_l by the path of a layer, such as ``{"encoder/dense": 0.1}``, kept as
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
        """``sqrt(sum_l C_l^2)``; None where they follow from the plan's clip norm."""
        return math.sqrt(sum(c**2 for _, c in self.bounds)) if self.bounds else None

    def to_dict(self) -> dict[str, Any]:
        """Returns the way of clipping as plain JSON values."""
        return {"kind": self.kind, "bounds": dict(self.bounds)}


@dataclasses.dataclass(frozen=True)
class QuantileClipping(FlatClipping):
    """Flat clipping at a C that follows a quantile of the examples' gradient norms.

    Every step also releases how many of its examples had a norm of at most C, with noise, and
    moves C by ``exp(-learning_rate * (fraction - quantile))``: Andrew et al. 2021, "Differentially
    Private Learning with Adaptive Clipping". The plan's clip norm is where C starts, and its
    noise multiplier is that of both releases together: the sum gets the more noise for it, see
    `gradient_noise_multiplier`.

    Attributes:
        quantile: The fraction of examples to leave unclipped, 0 to 1.
        learning_rate: How fast C moves.
        count_noise: Standard deviation of the noise on the count. If None, a twentieth of the
            expected batch size, as the authors recommend, and no less than five times the noise
            multiplier, so that the count never costs more than half a percent of the noise.
    """

    kind: ClassVar[str] = "quantile"
    quantile: float = 0.5
    learning_rate: float = 0.2
    count_noise: float | None = None

    def __post_init__(self) -> None:
        quantile = checks.not_negative("quantile", self.quantile)
        if quantile > 1:
            raise ValueError(f"quantile must be a fraction between 0 and 1, got {self.quantile!r}.")
        rate = checks.positive("learning_rate", self.learning_rate)
        object.__setattr__(self, "quantile", quantile)
        object.__setattr__(self, "learning_rate", rate)
        if self.count_noise is not None:
            noise = checks.positive("count_noise", self.count_noise)
            object.__setattr__(self, "count_noise", noise)

    def count_noise_for(self, batch_size: int, noise_multiplier: float) -> float:
        """Returns the standard deviation of the noise on the count of a step."""
        if self.count_noise is not None:
            return self.count_noise
        return max(_PART_OF_BATCH * batch_size, _TIMES_THE_NOISE * noise_multiplier)

    def gradient_noise_multiplier(self, batch_size: int, noise_multiplier: float) -> float:
        """Returns the noise on the sum in units of C, so that both releases together cost s.

        An example moves the sum by at most C and the count, in which it stands as plus or minus
        a half, by at most a half: ``s^-2 = z^-2 + (2 sigma_b)^-2`` (Andrew et al. 2021,
        Theorem 1).

        Raises:
            ValueError: The count alone would cost more than s.
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
    """Returns the way of clipping that an object, its dictionary or its name stands for.

    Raises:
        TypeError: It is none of these.
        ValueError: There is no such way, or an argument of it is out of range.
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
    """Returns clip norm and way of clipping that agree: clip norms by layer fix the clip norm.

    Args:
        clip_norm: A number; or clip norms by layer, for per-layer clipping.
        clipping: As for `as_clipping`.

    Raises:
        TypeError: A path is no text, or a clip norm no number.
        ValueError: There is no clip norm, or it is out of range; or clip norms by layer come with
            another clip norm or another way of clipping.
    """
    if isinstance(clip_norm, Mapping):
        if clipping is not None and as_clipping(clipping) != PerLayerClipping():
            raise ValueError("clip_norm by layer means clipping='per_layer': leave clipping out.")
        if not clip_norm:
            raise ValueError("clip_norm={}: expected the clip norm of one layer or more.")
        for path, bound in clip_norm.items():
            checks.kind(f"the path {path!r} in clip_norm", path, str)
            checks.positive(f"clip_norm[{path!r}]", bound)
        clipping, clip_norm = PerLayerClipping(clip_norm), None
    way = as_clipping(clipping)
    if isinstance(way, PerLayerClipping) and way.sensitivity is not None:
        if clip_norm is not None and not math.isclose(clip_norm, way.sensitivity, rel_tol=1e-9):
            raise ValueError(
                f"clip_norm {clip_norm!r} is not the root of the sum of squares of the clip norms "
                f"by layer, {way.sensitivity:g}: give those alone, as clip_norm."
            )
        clip_norm = way.sensitivity
    return clip_norm, way
