"""Checking, copying and encoding images and videos with Pillow."""

from __future__ import annotations

import io
import re
from pathlib import PurePosixPath
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

DEFAULT_FPS: Final = 30.0
_PALETTE_PIXELS: Final = 1 << 18


def to_numpy(data: Any) -> NDArray[Any]:
    """Return a tensor, array or sequence as a NumPy array, possibly sharing memory."""
    if hasattr(data, "detach"):
        data = data.detach().cpu()
    return np.asarray(data)


def as_image(name: str, image: Any) -> NDArray[np.uint8]:
    """Check and copy an image."""
    array = to_numpy(image)
    _check_uint8("image", name, array)
    if array.ndim == 2:
        array = array[..., None]
    elif array.ndim == 3 and array.shape[0] in (1, 3):
        array = array.transpose(1, 2, 0)
    if array.ndim != 3 or array.shape[-1] not in (1, 3) or array.size == 0:
        raise ValueError(
            f"image {name!r} has shape {list(np.shape(image))}; [H, W], [C, H, W] or [H, W, C] "
            "with 1 or 3 channels is needed"
        )
    return np.array(array, order="C")


def as_video(name: str, video: Any) -> NDArray[np.uint8]:
    """Check and copy a video; several videos are tiled horizontally."""
    array = to_numpy(video)
    _check_uint8("video", name, array)
    if array.ndim == 4:
        array = array[None]
    if array.ndim != 5 or array.shape[2] not in (1, 3) or array.size == 0:
        raise ValueError(
            f"video {name!r} has shape {list(np.shape(video))}; [N, T, C, H, W] or [T, C, H, W] "
            "with 1 or 3 channels is needed"
        )
    films, time, channels, height, width = array.shape
    tiled = np.array(array.transpose(1, 3, 0, 4, 2), order="C")
    return tiled.reshape(time, height, films * width, channels)


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Encode an image, uint8 `[H, W, C]`, as PNG."""
    out = io.BytesIO()
    _picture(pixels).save(out, "PNG")
    return out.getvalue()


def gif(frames: NDArray[np.uint8], fps: float | None = None) -> bytes:
    """Encode a video, uint8 `[T, H, W, C]`, as an endless animated GIF of `fps`, 30 by default.

    All frames share one palette of 256 colours, several times as fast as a palette per frame.
    """
    from PIL import Image

    pictures = [_picture(frame) for frame in frames]
    if frames.shape[-1] == 3:
        pixels = frames.reshape(-1, 3)
        stride = len(pixels) // _PALETTE_PIXELS | 1  # odd, so that it does not walk down a column
        palette = _picture(np.ascontiguousarray(pixels[None, ::stride])).quantize(256)
        no_dither = Image.Dither.NONE
        pictures = [picture.quantize(palette=palette, dither=no_dither) for picture in pictures]
    out = io.BytesIO()
    pictures[0].save(
        out,
        "GIF",
        save_all=True,
        append_images=pictures[1:],
        duration=max(round(100 / (fps or DEFAULT_FPS)), 1) * 10,
        loop=0,
        optimize=False,
    )
    return out.getvalue()


def file_name(name: str, step: int, suffix: str) -> PurePosixPath:
    """Convert a metric name to a relative path without `..`.

    >>> file_name("eval/policy", 1200, ".gif")
    PurePosixPath('eval/policy_000000001200.gif')
    """
    parts = [re.sub(r"[^\w.=-]", "_", part) for part in name.split("/")]
    parts = [part for part in parts if part.strip(".")] or ["unnamed"]
    return PurePosixPath(*parts[:-1], f"{parts[-1]}_{step:012d}{suffix}")


def _picture(pixels: NDArray[np.uint8]) -> Any:
    from PIL import Image

    return Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)


def _check_uint8(kind: str, name: str, array: NDArray[Any]) -> None:
    if array.dtype != np.uint8:
        raise ValueError(
            f"{kind} {name!r} has dtype {array.dtype}; uint8 in 0 … 255 is needed "
            "(for floats in 0 … 1: `(255 * x).to(torch.uint8)`)"
        )
