"""The training curve of a run, with the privacy spent."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

_BLUE, _RED, _GRAY = "#1f5fa8", "#b3261e", "#666666"


def plot_training_curve(
    path: str | Path,
    steps: Sequence[int],
    loss: Sequence[float],
    epsilon: Sequence[float],
    *,
    delta: float | None = None,
    held_out: tuple[Sequence[int], Sequence[float]] | None = None,
    references: Mapping[str, float] | None = None,
    loss_label: str = "loss",
) -> Path:
    """Draws loss (left axis) and the privacy spent (right axis) against steps.

    Args:
        path: The PNG file to write; its folder is made if it is missing.
        steps: Step numbers, `[K]`.
        loss: Training loss at those steps, `[K]`.
        epsilon: Privacy spent after those steps, `[K]`; points that are not finite (a run without
            noise) are not drawn.
        delta: Named on the axis, if given.
        held_out: Step numbers and held-out loss, drawn as points.
        references: Name -> loss, drawn as dashed lines (for instance that of a trivial model).
        loss_label: Label of the left axis: what the loss is, and its unit.

    Returns:
        The path written.

    Raises:
        ValueError: If the sequences differ in length or are empty.
    """
    if not len(steps) == len(loss) == len(epsilon) or not len(steps):
        raise ValueError(
            "steps, loss and epsilon must have one length of at least 1, "
            f"got {len(steps)}, {len(loss)} and {len(epsilon)}."
        )
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axis = figure.add_subplot()
    mark = "." if len(steps) == 1 else None
    axis.plot(steps, loss, color=_BLUE, marker=mark, label="training loss")
    if held_out is not None and len(held_out[0]):
        axis.plot(*held_out, "o", color=_BLUE, label="held-out loss")
    for name, value in (references or {}).items():
        axis.axhline(value, color=_GRAY, linestyle="--", linewidth=1, label=name)
    axis.set(xlabel="step", ylabel=loss_label)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.grid(alpha=0.25)

    privacy = axis.twinx()
    _draw_epsilon(privacy, steps, np.asarray(epsilon, dtype=np.float64), delta)
    lines = axis.get_lines() + privacy.get_lines()
    figure.legend(handles=lines, loc="outside lower center", ncols=len(lines), frameon=False)
    return save_png(figure, path)


def _draw_epsilon(
    axis: Axes, steps: Sequence[int], epsilon: np.ndarray, delta: float | None
) -> None:
    """The right axis, from 0; without a finite point it says so and has no scale."""
    finite = np.isfinite(epsilon)
    axis.set_ylabel("epsilon" if delta is None else f"epsilon at delta = {delta:.3g}", color=_RED)
    if not finite.any():
        axis.set_ylabel("epsilon is infinite: no noise", color=_RED)
        axis.set_yticks([])
        return
    mark = "." if finite.sum() == 1 else None
    axis.plot(np.asarray(steps)[finite], epsilon[finite], color=_RED, marker=mark, label="epsilon")
    axis.tick_params(axis="y", colors=_RED)
    axis.set_ylim(bottom=0)


def save_png(figure: Figure, path: str | Path) -> Path:
    """Writes the same bytes for the same figure, whatever matplotlib's version string is."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure).print_png(path, metadata={"Software": None})
    return path
