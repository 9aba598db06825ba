"""Choosing how to draw without a screen."""

from __future__ import annotations

import ctypes.util
import os
import sys

import pytest

from hooktrainer.show.gallery.recording import advice, draw_off_screen

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="MuJoCo chooses itself there")


@pytest.fixture
def choose(monkeypatch):
    """What MUJOCO_GL becomes where some libraries are installed."""

    def chosen(installed, wanted=None, display=None):
        monkeypatch.setattr(ctypes.util, "find_library", lambda n: n if n in installed else None)
        for name, value in (("MUJOCO_GL", wanted), ("DISPLAY", display)):
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)
        draw_off_screen()
        return os.environ.get("MUJOCO_GL")

    return chosen


@pytest.mark.parametrize(
    ("installed", "wanted", "display", "expected"),
    [
        (["EGL", "OSMesa"], None, None, "egl"),
        (["OSMesa"], None, None, "osmesa"),
        (["EGL", "OSMesa"], "osmesa", None, "osmesa"),
        (["EGL"], "osmesa", None, "egl"),  # MuJoCo would not start
        (["EGL"], "glfw", None, "glfw"),
        ([], None, None, "disable"),
        ([], "egl", ":0", "disable"),
        ([], None, ":0", None),  # there is a screen
    ],
)
def test_mujoco_draws_with_what_is_there(installed, wanted, display, expected, choose):
    assert choose(installed, wanted, display) == expected


def test_pygame_draws_into_memory_unless_the_user_wants_a_window(monkeypatch):
    monkeypatch.delenv("SDL_VIDEODRIVER", raising=False)
    draw_off_screen()
    assert os.environ["SDL_VIDEODRIVER"] == "dummy"
    monkeypatch.setenv("SDL_VIDEODRIVER", "x11")
    draw_off_screen()
    assert os.environ["SDL_VIDEODRIVER"] == "x11"


def test_a_failed_drawing_says_what_to_install(choose):
    error = RuntimeError("Environment variable MUJOCO_GL must be one of ...: got 'disable'.")
    choose([])
    assert "neither is installed" in advice(error)
    choose(["EGL"])
    assert "MUJOCO_GL is egl" in advice(error)
    assert advice(ValueError("something else")) == ""
