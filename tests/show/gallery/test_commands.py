"""`hooktrainer gallery` and `hooktrainer render`."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from PIL import Image
from saved_runs import BALANCES, FALLS, Silent, save_policy

from hooktrainer.cli import main

QUICK = ("--episodes", "1", "--size", "60", "--seconds", "0.4")


@pytest.fixture
def call(capsys):
    def run(*words):
        code = main([str(getattr(word, "path", word)) for word in words])
        return code, *capsys.readouterr()

    return run


def test_gallery_lists_what_it_shows_and_where(make_run, call, tmp_path):
    run, page = make_run(), tmp_path / "new" / "page.html"
    run.logs.mkdir()
    code, out, err = call("gallery", run, "-o", page, *QUICK)
    assert code == 0
    assert page.stat().st_size > 1000
    assert "1,000" in out
    assert "500" in out
    assert f"wrote {page}" in err
    assert len(list((run.logs / "gallery").iterdir())) == 2


def test_gallery_json(make_run, call):
    run = make_run()
    code, out, _ = call("gallery", run, "--json", "--seed", "5", *QUICK)
    bad, good = json.loads(out)
    assert code == 0
    assert good["path"] == str(run.path / "policies" / "step_000000001000")
    wanted = {"frames": 1000, "return": 500, "return_std": 0, "length": 500, "seed": 5}
    assert {name: good[name] for name in wanted} == wanted
    wanted = {"return": 500.0, "length": 500, "seconds": 10.0, "seconds_shown": 0.4, "reason": None}
    assert good["picture"] == wanted
    assert bad["return"] < 100


def test_following_a_run_shows_what_is_saved_until_it_ends(make_run, call, monkeypatch):
    run = make_run(policies={0: FALLS})
    run.update(status="running")
    looks = []

    def wait(seconds):
        looks.append((run.path / "gallery.html").read_text().count("<article"))
        if len(looks) == 1:
            save_policy(run, "CartPole-v1", 1000, BALANCES)
        else:
            run.update(status="finished")

    monkeypatch.setattr("hooktrainer.cli.gallery.time", SimpleNamespace(sleep=wait))
    code, out, _ = call("gallery", run, "--follow", *QUICK)
    assert code == 0
    assert looks == [1, 2]
    assert out.count("1,000") == 1  # the table, once


def test_render_films_all_side_by_side(make_run, call, tmp_path):
    run = make_run()
    file = tmp_path / "film.gif"
    assert call("render", run, "--all", "-o", file, "--size", 120, "--seconds", 0.4)[0] == 0
    with Image.open(file) as film:
        assert film.size == (2 * 120 + 3 * 8, 110 + 2 * 8)


def test_an_environment_without_pictures_is_not_rendered(make_run, call, tmp_path):
    run = make_run(env=Silent, policies={0: (1.0, 2.5, 0.0)})
    code, _, err = call("render", run, "-o", tmp_path / "film.webp", "--trust")
    assert code == 2
    assert "Silent does not draw" in err
    assert "hooktrainer gallery shows the curves" in err
