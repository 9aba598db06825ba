"""Drawing without a screen: what pygame and MuJoCo read from the environment variables."""

from __future__ import annotations

import ctypes.util
import os
import sys

_LIBRARIES = {"egl": "EGL", "osmesa": "OSMesa"}


def draw_off_screen() -> None:
    """Let pygame and MuJoCo draw into memory.

    Call it before the first environment is made: both read their variables when they are imported.
    What the user has set stays as it is; but MuJoCo does not even start with a library that is not
    there, so such a choice is replaced.
    """
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    wanted = os.environ.get("MUJOCO_GL", "").strip().lower()
    if sys.platform != "linux" or wanted not in ("", *_LIBRARIES):
        return
    if not _is_there(wanted):
        found = next(filter(_is_there, _LIBRARIES), None)
        if found or wanted or "DISPLAY" not in os.environ:
            os.environ["MUJOCO_GL"] = found or "disable"


def advice(error: BaseException) -> str:
    """What to do about an environment that failed to draw; empty if nothing is known."""
    text = f"{type(error).__name__} {error}".lower()
    if not any(word in text for word in ("opengl", "mujoco_gl", "egl", "osmesa", "display")):
        return ""
    chosen = os.environ.get("MUJOCO_GL", "")
    if chosen == "disable":
        return "MuJoCo draws off screen with libEGL or libOSMesa, and neither is installed"
    return f"MUJOCO_GL is {chosen or 'not set'}; with egl or osmesa MuJoCo needs no screen"


def _is_there(backend: str) -> bool:
    return backend in _LIBRARIES and ctypes.util.find_library(_LIBRARIES[backend]) is not None
