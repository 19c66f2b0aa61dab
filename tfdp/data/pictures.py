"""From an encoded picture to a square of pixels."""

import io
import math
import os
from dataclasses import dataclass

import numpy as np
from PIL import Image

_BICUBIC = Image.Resampling.BICUBIC
Box = tuple[float, float, float, float]


def open_picture(image: bytes | str | os.PathLike | np.ndarray) -> np.ndarray:
    """Returns a decoded picture, uint8 `[H, W, 3]`; transparent parts become white.

    Args:
        image: Encoded picture in a format that Pillow reads, path of one, or pixels uint8
            `[H, W, 3]`.

    Raises:
        FileNotFoundError: If the path does not exist.
        Exception: Whatever Pillow raises if the picture is damaged.
    """
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[-1] != 3:
            raise ValueError(
                f"pixels must be uint8 [H, W, 3], got {image.dtype} {list(image.shape)}."
            )
        return image
    with Image.open(io.BytesIO(image) if isinstance(image, bytes) else image) as picture:
        return np.asarray(_on_white(picture))


def _on_white(picture: Image.Image) -> Image.Image:
    if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
        layer = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)
    return picture.convert("RGB")


def center_square(picture: np.ndarray, size: int, share: float = 1.0) -> np.ndarray:
    """Returns the middle of a picture, uint8 `[size, size, 3]`.

    Args:
        picture: uint8 `[H, W, 3]`.
        size: Pixels along a side.
        share: Side of the square that is cut out, as a share of the picture's shorter side.
    """
    if picture.shape == (size, size, 3) and share == 1.0:
        return picture
    return _cut(picture, _middle(picture, share), size)


@dataclass(frozen=True)
class RandomResizedCrop:
    """Cuts a random part out of a picture, resizes it, and mirrors it half of the time.

    The draw is a pure function of (seed, example, step). The seed needs no secrecy: augmentation
    is not part of the guarantee.

    Attributes:
        scale: Bounds of the share of the area that is cut out.
        ratio: Bounds of the part's width over height.
        flip: Whether to mirror left and right. Off where captions say left and right.
        seed: Seed of the draws.
    """

    scale: tuple[float, float] = (0.2, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if not (_is_pair(self.scale) and 0 < self.scale[0] <= self.scale[1] <= 1):
            raise ValueError(f"scale must be two increasing numbers in (0, 1], got {self.scale}.")
        if not (_is_pair(self.ratio) and 0 < self.ratio[0] <= self.ratio[1]):
            raise ValueError(f"ratio must be two increasing positive numbers, got {self.ratio}.")

    def __call__(self, picture: np.ndarray, size: int, example: int, step: int) -> np.ndarray:
        """Returns the part, uint8 `[size, size, 3]`."""
        # Example and step each fill a 64-bit word of the counter: no two draws share numbers.
        # (As Python integers: NumPy's would overflow.)
        counter = int(step) << 192 | int(example) << 128
        philox = np.random.Philox(key=self.seed, counter=counter)
        rng = np.random.Generator(philox)
        part = _cut(picture, self._box(picture, rng), size)
        return part[:, ::-1] if self.flip and rng.random() < 0.5 else part

    def _box(self, picture: np.ndarray, rng: np.random.Generator) -> Box:
        """Draws until a part fits, ten times; then takes the middle."""
        height, width, _ = picture.shape
        for _ in range(10):
            area = width * height * rng.uniform(*self.scale)
            ratio = math.exp(rng.uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            part_width, part_height = math.sqrt(area * ratio), math.sqrt(area / ratio)
            if part_width <= width and part_height <= height:
                left = rng.uniform(0, width - part_width)
                top = rng.uniform(0, height - part_height)
                return left, top, left + part_width, top + part_height
        return _middle(picture)


def _is_pair(bounds: object) -> bool:
    return isinstance(bounds, tuple | list) and len(bounds) == 2


def _middle(picture: np.ndarray, share: float = 1.0) -> Box:
    height, width, _ = picture.shape
    side = share * min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side


def _cut(picture: np.ndarray, box: Box, size: int) -> np.ndarray:
    return np.asarray(Image.fromarray(picture).resize((size, size), _BICUBIC, box=box))
