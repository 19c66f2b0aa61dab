"""Pictures of a run: its training curve, and what it says about pictures it has not seen."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

_BLUE, _RED, _GREY = "#1f5fa8", "#b3261e", "#666666"
_COLUMNS = 8
_CAPTION_WIDTH = 20  # characters a line that fit under a picture


def plot_training_curve(
    path: str | Path,
    steps: Sequence[int],
    loss: Sequence[float],
    epsilon: Sequence[float],
    *,
    delta: float | None = None,
    held_out: tuple[Sequence[int], Sequence[float]] | None = None,
    references: Mapping[str, float] | None = None,
) -> Path:
    """Draws loss (left axis) and the privacy spent (right axis) against steps.

    Args:
        path: the PNG file to write; its folder is made if it is missing.
        steps: update numbers, `[K]`.
        loss: training loss at those steps, `[K]`, in nats per token, averaged within each caption
            and then over captions; so are the other losses.
        epsilon: privacy spent after those steps, `[K]`; points that are not finite (a run without
            noise) are not drawn.
        delta: named on the axis, if given.
        held_out: update numbers and held-out loss, drawn as points.
        references: name -> loss, drawn as dashed lines (for instance the unigram model).

    Returns:
        The path written.

    Raises:
        ValueError: if the sequences differ in length or are empty.
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
        axis.axhline(value, color=_GREY, linestyle="--", linewidth=1, label=name)
    axis.set(xlabel="update", ylabel="loss (nats per token, mean over captions)")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.grid(alpha=0.25)

    privacy = axis.twinx()
    _draw_epsilon(privacy, steps, np.asarray(epsilon, dtype=np.float64), delta)
    lines = axis.get_lines() + privacy.get_lines()
    figure.legend(handles=lines, loc="outside lower center", ncols=len(lines), frameon=False)
    return _save(figure, path)


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


def save_caption_sheet(
    path: str | Path,
    images: npt.ArrayLike,
    true_captions: Sequence[str],
    generated_captions: Sequence[str],
    likelier: Sequence[float] | None = None,
) -> Path:
    """Draws pictures in rows of 8, each over its true and its generated caption.

    Args:
        path: the PNG file to write; its folder is made if it is missing.
        images: `[N, H, W, 3]`, uint8, or floats in [0, 1] (undo the normalisation first).
        true_captions: N captions, in grey.
        generated_captions: N captions, in blue; an empty one shows as (empty).
        likelier: N numbers in black, such as those of `times_likelier`, if given.

    Returns:
        The path written.

    Raises:
        ValueError: if the counts differ, there is no picture, or floats lie outside [0, 1].
    """
    pictures = np.asarray(images)
    lines = [(true_captions, _GREY), (generated_captions, _BLUE)]
    title = "true caption (grey), generated caption (blue)"
    if likelier is not None:
        lines.append(([f"× {times:.2g}" for times in likelier], "black"))
        title += ", × how much likelier its own picture makes the true one than the others do"
    counts = len(pictures), *(len(texts) for texts, _ in lines)
    if len(set(counts)) != 1 or not counts[0]:
        raise ValueError(f"Expected one caption of each kind a picture, got {counts}.")
    if pictures.dtype != np.uint8 and not (pictures.min() >= 0 and pictures.max() <= 1):
        raise ValueError(
            f"images of dtype {pictures.dtype} must lie in [0, 1], got "
            f"{pictures.min():.3g} to {pictures.max():.3g}: undo the normalisation first."
        )
    columns = min(_COLUMNS, counts[0])
    rows = -(-counts[0] // columns)
    width, height, top = 1.6 * columns, 2.25 * rows, 0.35  # inches
    figure = Figure(figsize=(width, height + top))
    figure.text(0.5, 1, f"\n{title}", ha="center", va="top", size=min(10, 0.9 * width))
    grid = figure.add_gridspec(
        rows, columns, left=0.01, right=0.99, bottom=0, top=height / (height + top), hspace=0.02
    )
    for index, picture in enumerate(pictures):
        view = figure.add_subplot(grid[index // columns, index % columns], anchor="N")
        view.imshow(picture, interpolation="nearest")
        view.axis("off")
        drop = 3.0  # points under the picture
        for texts, colour in lines:
            text = _shortened(texts[index])
            view.annotate(
                text,
                (0.5, 0),
                xytext=(0, -drop),
                xycoords="axes fraction",
                textcoords="offset points",
                ha="center",
                va="top",
                color=colour,
                size=8,
            )
            drop += 11 * (text.count("\n") + 1)
    return _save(figure, path)


def _shortened(caption: str) -> str:
    """At most two lines that fit under a picture; dollar signs are text, not formulas."""
    lines = textwrap.wrap(
        " ".join(caption.split()) or "(empty)", _CAPTION_WIDTH, max_lines=2, placeholder=" ..."
    )
    return "\n".join(lines).replace("$", r"\$")


def _save(figure: Figure, path: str | Path) -> Path:
    """Writes the same bytes for the same figure, whatever matplotlib's version string is."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure).print_png(path, metadata={"Software": None})
    return path
