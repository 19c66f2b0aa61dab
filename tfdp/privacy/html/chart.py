"""The curve of epsilon as SVG inside the page; its colours are the page's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from tfdp.privacy.html.curve import Curve
from tfdp.privacy.html.numbers import count, figure, ticks

# In units of the drawing, which is as wide as the screen of a phone: letters stay readable there.
_WIDTH, _HEIGHT = 380, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 366, 26, 206


def chart(curves: Sequence[Curve], target: float | None) -> str:
    """Epsilon against steps, with the target as a dashed line.

    Args:
        curves: the report's accountant first.
        target: the epsilon that was asked for, or None.
    """
    if not curves or not all(math.isfinite(e) for curve in curves for e in curve.epsilons):
        return ""
    own = curves[0]
    most = max(max(curve.epsilons) for curve in curves)
    scale = _Scale(own.steps[-1], 1.08 * max(most, target or 0, 1e-9))
    label = (
        f"Epsilon against steps: {figure(own.epsilons[-1])} after {count(own.steps[-1])} "
        f"by {own.title}"
    )
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)}">',
        *_axes(scale),
        *(_line(scale, curve, "own" if curve is own else "other") for curve in reversed(curves)),
        *(_target(scale, target) if target is not None else ()),
        _end(scale, own),
        "</svg>",
    ]
    return "\n".join(parts)


class _Scale:
    """From steps and epsilon to the drawing."""

    def __init__(self, steps: int, epsilon: float) -> None:
        self.steps, self.epsilon = steps, epsilon

    def x(self, steps: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * steps / self.steps

    def y(self, epsilon: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * epsilon / self.epsilon


def _axes(scale: _Scale) -> Iterator[str]:
    for value in ticks(scale.epsilon):
        y = scale.y(value)
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{_RIGHT}"/>'
        yield f'<text x="{_LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{figure(value, 3)}</text>'
    for value in ticks(scale.steps, 4):
        if value == int(value):
            x = scale.x(value)
            yield f'<text x="{x:.1f}" y="{_BOTTOM + 17}" text-anchor="middle">{count(value)}</text>'
    yield f'<path class="axis" d="M{_LEFT} {_BOTTOM}H{_RIGHT}"/>'
    yield f'<text class="name" x="{_LEFT - 7}" y="14" text-anchor="end">ε</text>'
    yield (
        f'<text class="name" x="{(_LEFT + _RIGHT) / 2}" y="{_HEIGHT - 5}" '
        'text-anchor="middle">steps</text>'
    )


def _target(scale: _Scale, target: float) -> Iterator[str]:
    y = scale.y(target)
    yield f'<path class="target" d="M{_LEFT} {y:.1f}H{_RIGHT}"/>'
    yield f'<text class="name" x="{_LEFT + 6}" y="{y - 6:.1f}">target {figure(target)}</text>'


def _line(scale: _Scale, curve: Curve, kind: str) -> str:
    pairs = zip(curve.steps, curve.epsilons, strict=True)
    points = " ".join(f"{scale.x(n):.1f},{scale.y(e):.1f}" for n, e in pairs)
    return f'<polyline class="{kind}" points="{points}"/>'


def _end(scale: _Scale, curve: Curve) -> str:
    return (
        f'<circle class="own" cx="{scale.x(curve.steps[-1]):.1f}" '
        f'cy="{scale.y(curve.epsilons[-1]):.1f}" r="4"/>'
    )
