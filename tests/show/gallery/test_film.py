"""Captions, films side by side, and the file formats."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image
from saved_runs import Drawing

from hooktrainer.errors import ConfigError
from hooktrainer.policies import list_policies
from hooktrainer.show import Film, encode, film_policies, side_by_side


def film(*shades: int, fps: float = 25.0, shape: tuple[int, int] = (40, 60)) -> Film:
    return Film([np.full((*shape, 3), shade, np.uint8) for shade in shades], fps)


def shades(made: Film, row: int, column: int) -> list[int]:
    return [int(frame[row, column, 0]) for frame in made.frames]


def test_a_caption_is_above_every_picture():
    made = film(0, 50, shape=(40, 300)).with_caption("1,000 frames", "return 7")
    assert {frame.shape for frame in made.frames} == {(70, 300, 3)}
    assert shades(made, 69, 0) == [0, 50]
    left, right = made.frames[0][:30, :150], made.frames[0][:30, 150:]
    assert left.min() < 60  # dark on a light ground
    assert right.min() < 130


def test_the_last_picture_is_held(make_run):
    assert shades(film(1, 2, fps=5).with_pause(), 0, 0) == [1, 2, 2, 2, 2, 2]  # 0.8 s of 5 a second
    run = make_run(env=Drawing, policies={0: (1.0, 0.0, 0.0)})
    made = film_policies(list_policies(run), episodes=2, trust=True)
    assert shades(made, -1, 0) == [0, 80, 160, *[200] * 21] * 2  # 0.8 s of 25 a second


def test_side_by_side_shorter_films_repeat():
    made = side_by_side([film(1, 2, 3), film(7, 8)], gap=10)
    assert made.frames[0].shape == (60, 150, 3)
    assert shades(made, 10, 10) == [1, 2, 3]
    assert shades(made, 10, 80) == [7, 8, 7]
    assert shades(made, 0, 0)[0] > 240  # the gap


@pytest.mark.parametrize(("suffix", "kind"), [(".webp", "WEBP"), (".gif", "GIF")])
def test_a_film_in_a_file_repeats_at_its_speed(suffix, kind):
    with Image.open(io.BytesIO(encode(film(0, 60, 120, fps=20), suffix))) as image:
        assert image.format == kind
        assert image.n_frames == 3
        assert image.size == (60, 40)
        assert image.info["loop"] == 0
        image.seek(1)
        image.load()
        assert image.info["duration"] == 50


def test_an_mp4_without_pyav_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    with pytest.raises(ConfigError, match=r"pip install 'hooktrainer\[video\]'"):
        encode(film(0), ".mp4")


def test_an_mp4_with_pyav():
    av = pytest.importorskip("av")
    data = encode(film(0, 100, 200, fps=25), ".mp4")
    with av.open(io.BytesIO(data)) as container:
        frames = list(container.decode(video=0))
    assert [frame.to_ndarray(format="rgb24").shape for frame in frames] == [(40, 60, 3)] * 3
