"""Picture files to the captioner's input, as in training but in TensorFlow's own ops.

Training decodes and resizes with Pillow (`tfdp.data.pictures`), which a served graph cannot call.
Here the same arithmetic is spelled out: the pixels are equal, save for a rounding by one level of
256 in a few of a thousand values.
"""

from collections.abc import Callable

import tensorflow as tf


def decode_picture(data: tf.Tensor, size: int, crop_share: float = 1.0) -> tf.Tensor:
    """The middle square of an encoded picture.

    Args:
        data: string scalar: a PNG, JPEG, WebP, GIF (its first frame) or BMP file.
        size: Pixels along a side of the result.
        crop_share: Side of the square that is cut out, over the picture's shorter side.

    Returns:
        float32 `[size, size, 3]`, whole numbers from 0 to 255.

    Raises:
        tf.errors.InvalidArgumentError: while it runs, if the bytes are no picture.
    """
    pixels = tf.cast(_decode_rgb(data), tf.float32)
    height, width = (tf.cast(side, tf.float32) for side in tf.unstack(tf.shape(pixels)[:2]))
    side = crop_share * tf.minimum(height, width)
    # Pillow resizes along one axis after the other, and rounds in between.
    pixels = _resize(pixels, (1.0, size / side), (0.0, (width - side) / 2), (height, size))
    pixels = _resize(pixels, (size / side, 1.0), ((height - side) / 2, 0.0), (size, size))
    return tf.ensure_shape(pixels, (size, size, 3))


def decode_each(
    decode: Callable[[tf.Tensor], tf.Tensor], image_bytes: tf.Tensor, size: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Decodes a batch of pictures; one that cannot be decoded does not take the others with it.

    A decoding op stops the whole graph at bytes that are no picture. `tf.data` is the one part of
    TensorFlow that can go on after an error inside a graph, so the pictures pass through a data
    set that leaves the bad ones out.

    Args:
        decode: Bytes (string scalar) -> float32 `[size, size, 3]`.
        image_bytes: string `[B]`.
        size: Side of the decoded pictures in pixels.

    Returns:
        float32 `[B, size, size, 3]`, zero where a picture could not be decoded, and bool `[B]`,
        whether it could.
    """

    count = tf.size(image_bytes, tf.int64)
    found = (
        tf.data.Dataset.from_tensor_slices((tf.range(count), image_bytes))
        .map(lambda index, data: (index, decode(data)), num_parallel_calls=tf.data.AUTOTUNE)
        .ignore_errors()
        .batch(tf.maximum(count, 1))  # all that are left, or nothing
        .reduce(_no_pictures(size), lambda _, batch: batch)
    )
    rows, pixels = found[0][:, tf.newaxis], found[1]
    shape = tf.stack([count, size, size, 3])
    valid = tf.scatter_nd(rows, tf.ones_like(found[0]), count[tf.newaxis]) > 0
    return tf.ensure_shape(tf.scatter_nd(rows, pixels, shape), (None, size, size, 3)), valid


def _no_pictures(size: int) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.zeros([0], tf.int64), tf.zeros([0, size, size, 3])


def _decode_rgb(data: tf.Tensor) -> tf.Tensor:
    """int32 `[H, W, 3]`; transparent parts are white, gray pictures have three equal channels."""

    def jpeg() -> tf.Tensor:
        # The accurate transform is Pillow's; TensorFlow's default differs by several levels.
        pixels = tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE")
        return tf.cast(pixels, tf.int32)

    def other() -> tf.Tensor:
        pixels = tf.cast(tf.io.decode_image(data, expand_animations=False), tf.int32)
        channels = tf.shape(pixels)[-1]  # 1 or 3, and one more where there is transparency
        color = tf.cond(
            channels < 3, lambda: tf.repeat(pixels[..., :1], 3, axis=-1), lambda: pixels[..., :3]
        )
        return tf.cond(channels % 2 == 0, lambda: _on_white(color, pixels[..., -1:]), lambda: color)

    return tf.ensure_shape(tf.cond(tf.io.is_jpeg(data), jpeg, other), (None, None, 3))


def _on_white(color: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
    """(color * alpha + white * (255 - alpha)) / 255, rounded in integers the way Pillow does."""
    blended = 128 * (color * alpha + 255 * (255 - alpha) + 128)
    shift = tf.bitwise.right_shift
    return shift(shift(shift(blended, 8) + blended, 8), 7)


def _resize(pixels: tf.Tensor, scale: tuple, start: tuple, size: tuple) -> tf.Tensor:
    """Bicubic (Keys, a = -1/2) with antialiasing, from `start` on, rounded to whole levels."""
    factors = tf.stack([tf.cast(value, tf.float32) for value in scale])
    resized = tf.raw_ops.ScaleAndTranslate(
        images=pixels[tf.newaxis],
        size=tf.stack([tf.cast(value, tf.int32) for value in size]),
        scale=factors,
        translation=-factors * tf.stack([tf.cast(value, tf.float32) for value in start]),
        kernel_type="keyscubic",
        antialias=True,
    )[0]
    return tf.clip_by_value(tf.floor(resized + 0.5), 0.0, 255.0)
