"""A sheet of pictures, each over its true caption and the one that a captioner wrote."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from tfdp.evaluation.training_curve import save_png

_BLUE, _GRAY = "#1f5fa8", "#666666"
_COLUMNS = 8
_CAPTION_WIDTH = 20  # characters a line that fit under a picture


def save_caption_sheet(
    path: str | Path,
    images: npt.ArrayLike,
    true_captions: Sequence[str],
    generated_captions: Sequence[str],
    likelier: Sequence[float] | None = None,
) -> Path:
    """Draws pictures in rows of 8, each over its true and its generated caption.

    Args:
        path: The PNG file to write; its folder is made if it is missing.
        images: `[N, H, W, 3]`, uint8, or floats in [0, 1] (undo the normalization first).
        true_captions: N captions, in gray.
        generated_captions: N captions, in blue; an empty one shows as (empty).
        likelier: N numbers in black, such as those of `times_likelier`, if given.

    Returns:
        The path written.

    Raises:
        ValueError: If the counts differ, there is no picture, or floats lie outside [0, 1].
    """
    pictures = np.asarray(images)
    lines = [(true_captions, _GRAY), (generated_captions, _BLUE)]
    title = "true caption (gray), generated caption (blue)"
    if likelier is not None:
        lines.append(([f"× {times:.2g}" for times in likelier], "black"))
        title += ", × how much likelier its own picture makes the true one than the others do"
    counts = len(pictures), *(len(texts) for texts, _ in lines)
    if len(set(counts)) != 1 or not counts[0]:
        raise ValueError(f"Expected one caption of each kind per picture, got {counts}.")
    if pictures.dtype != np.uint8 and not (pictures.min() >= 0 and pictures.max() <= 1):
        raise ValueError(
            f"images of dtype {pictures.dtype} must lie in [0, 1], got "
            f"{pictures.min():.3g} to {pictures.max():.3g}: undo the normalization first."
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
        for texts, color in lines:
            text = _shortened(texts[index])
            view.annotate(
                text,
                (0.5, 0),
                xytext=(0, -drop),
                xycoords="axes fraction",
                textcoords="offset points",
                ha="center",
                va="top",
                color=color,
                size=8,
            )
            drop += 11 * (text.count("\n") + 1)
    return save_png(figure, path)


def _shortened(caption: str) -> str:
    """At most two lines that fit under a picture; dollar signs are text, not formulas."""
    lines = textwrap.wrap(
        " ".join(caption.split()) or "(empty)", _CAPTION_WIDTH, max_lines=2, placeholder=" ..."
    )
    return "\n".join(lines).replace("$", r"\$")
