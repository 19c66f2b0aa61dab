"""From SVG to a small square picture."""

import hashlib
import io
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass

import numpy as np
import resvg_py
from PIL import Image

_WHITE = "#ffffff"
_NAMESPACES = {"": "http://www.w3.org/2000/svg", "xlink": "http://www.w3.org/1999/xlink"}
# A picture whose darkest and brightest values differ by less shows nothing.
_LEAST_CONTRAST = 24


@dataclass(frozen=True)
class Rendered:
    """A picture, or why there is none.

    Attributes:
      image: Lossless WebP; empty if it could not be rendered.
      pixels: Digest of the pixels: equal for equal pictures.
      failure: Why there is no picture: "blank", or what the renderer said.
    """

    image: bytes = b""
    pixels: str = ""
    failure: str = ""


def render(svg: str, size: int) -> Rendered:
    """Draws an SVG on white, centred in a square of `size` pixels, never raising.

    Fonts of the system are not used, so that the result depends on the SVG alone.
    """
    try:
        picture = rasterize(final_frame(svg), size)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the renderer is no Exception
        return Rendered(failure=" ".join(str(error).split())[:200] or type(error).__name__)
    if int(picture.max()) - int(picture.min()) < _LEAST_CONTRAST:
        return Rendered(failure="blank")
    return Rendered(encode(picture), hashlib.sha256(picture.tobytes()).hexdigest()[:32])


def rasterize(svg: str, size: int) -> np.ndarray:
    """Returns the picture, uint8 `[size, size, 3]`.

    Raises:
      ValueError: If the SVG cannot be drawn.
    """
    root = ElementTree.fromstring(svg)
    width, height = float(root.get("width", size)), float(root.get("height", size))
    wide = width >= height
    png = resvg_py.svg_to_bytes(
        svg_string=svg,
        background=_WHITE,
        skip_system_fonts=True,
        width=size if wide else None,
        height=None if wide else size,
    )
    drawn = Image.open(io.BytesIO(bytes(png))).convert("RGB")
    canvas = Image.new("RGB", (size, size), _WHITE)
    canvas.paste(drawn, ((size - drawn.width) // 2, (size - drawn.height) // 2))
    return np.asarray(canvas)


def encode(picture: np.ndarray) -> bytes:
    """Returns the picture as lossless WebP."""
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "WEBP", lossless=True, quality=80, method=4)
    return file.getvalue()


def decode(image: bytes) -> np.ndarray:
    """Returns the pixels of an encoded picture, uint8 `[H, W, 3]`."""
    return np.asarray(Image.open(io.BytesIO(image)).convert("RGB"))


def final_frame(svg: str) -> str:
    """Shows animations that draw a picture once ("freeze") as they end, not as they begin."""
    if "<animate" not in svg:
        return svg
    for prefix, uri in _NAMESPACES.items():
        ElementTree.register_namespace(prefix, uri)
    root = ElementTree.fromstring(svg)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith("}animate") and child.get("fill") == "freeze":
                end = child.get("to") or child.get("values", "").split(";")[-1]
                if child.get("attributeName") and end:
                    parent.set(child.get("attributeName", ""), end.strip())
                parent.remove(child)
    return ElementTree.tostring(root, encoding="unicode")
