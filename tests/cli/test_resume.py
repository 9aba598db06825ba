"""`hooktrainer resume`."""

from __future__ import annotations

import json
import re

import pytest
from outcomes import committed
from warm_python import run as run_python

from hooktrainer import ConfigError
from hooktrainer.cli.scripts import command_of
from hooktrainer.store.provenance import sign_command


@pytest.mark.parametrize(
    ("recorded", "message"),
    [
        ({}, "does not name the script that started it"),
        ({"script": "/nowhere/train.py", "argv": [], "cwd": "/"}, "is gone: /nowhere/train.py"),
        ({"script": ["/a"], "argv": []}, "run.json: its 'script' is a list"),
        ({"script": "/a\0b", "argv": []}, "is gone: /a"),
    ],
)
def test_a_run_without_a_usable_command_is_refused(call, tmp_path, recorded, message):
    (tmp_path / "run.json").write_text(json.dumps(recorded))
    done = call("resume", tmp_path)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert message in done.err


@pytest.mark.parametrize(
    "source", ["launch(main)", "PPO.main()", "import argparse", "PPO().train()"]
)
def test_only_programs_that_read_options_get_some(tmp_path, source):
    script = tmp_path / "mine.py"
    script.write_text(source)
    recorded = {"script": str(script), "module": None, "argv": []}
    if source == "PPO().train()":
        with pytest.raises(
            ConfigError, match=rf'mine.py.* run_dir="{tmp_path}" and resume="latest"'
        ):
            command_of(tmp_path, recorded)
        recorded["argv"] = ["--lr", "1"]
    assert command_of(tmp_path, recorded)[1] == str(script)


def test_one_of_several_seeds_resumes_in_its_directory(call, tmp_path):
    script, run = tmp_path / "train.py", tmp_path / "many" / "seed3"
    script.touch()
    run.mkdir(parents=True)
    recorded = {"script": str(script), "argv": ["--seeds", "8"], "cwd": "/nowhere", "seed": 3}
    recorded["signature"] = sign_command(recorded)
    (run / "run.json").write_text(json.dumps(recorded))
    (run / "config.yaml").write_text("seeds: own\nseed: 3\n")
    command = call("resume", run).err.split("\n")[0]
    assert command.endswith(f"--seeds 8 --seeds 3-3 --run-dir {tmp_path / 'many'} --resume latest")
    run = run.rename(tmp_path / "many" / "good")  # the command would train many/seed3 anew
    done = call("resume", run)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "needs the directory name seed3: rename it" in done.err


@pytest.mark.parametrize("made_by", ["me", "somebody else", "somebody I trust"])
def test_the_script_runs_again_where_it_was_begun(made_by, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import os, sys; print('hooktrainer.cli' in sys.modules, os.getcwd(), *sys.argv[1:]);"
        "sys.exit(7)"
    )
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    elsewhere.mkdir()
    run.mkdir()
    recorded = {"script": str(script), "argv": ["--seed", "1"], "cwd": str(elsewhere)}
    if made_by == "me":
        recorded["signature"] = sign_command(recorded)
    (run / "run.json").write_text(json.dumps(recorded))
    trust = ["--trust"] if made_by == "somebody I trust" else []
    words = ("hooktrainer", "resume", "run", *trust, "--", "--lr", "2")
    done = run_python("-m", *words, where=tmp_path)
    if made_by == "somebody else":
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert f"{script} --seed 1 --run-dir {run} --resume latest --lr 2" in done.stderr
        assert f"in {elsewhere}. Check it, then add --trust." in done.stderr
        return
    expected = f"True {elsewhere} --seed 1 --run-dir {run} --resume latest --lr 2\n"
    assert (done.returncode, done.stdout) == (7, expected)


# -- From a mirror.


@pytest.fixture
def mirror(tmp_path, make_run):
    """A mirror of a run whose script prints its arguments; a URL, and its directory."""
    there = make_run("there", (1.0, 2.0))
    script = tmp_path / "train.py"
    script.write_text("import sys; print(*sys.argv[1:])")
    recorded = {"script": str(script), "argv": ["--seed", "1"], "cwd": str(tmp_path), "seed": 1}
    recorded["signature"] = sign_command(recorded)
    (there / "run.json").write_text(json.dumps(recorded))
    (there / "config.yaml").write_text("seed: 1\n")
    return f"file://{there}", there


def test_a_mirror_is_fetched_and_its_run_continued(mirror, tmp_path):
    url, there = mirror
    where = tmp_path / "elsewhere"
    where.mkdir()
    words = ("-m", "hooktrainer", "resume", url, "--", "--lr", "2")
    done = run_python(*words, where=where)
    run = where / "runs" / "there"
    assert done.stdout == f"--seed 1 --run-dir {run} --resume latest --lr 2\n", done.stderr
    assert committed(run) == committed(there)[-1:]
    again = run_python(*words, where=where)
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)
    assert "runs/there has checkpoints already: continue from them with" in again.stderr


def test_of_one_of_several_seeds_only_that_is_continued(call, mirror, tmp_path, monkeypatch):
    there = mirror[1]
    monkeypatch.chdir(tmp_path)
    (there / "config.yaml").write_text("seeds: own\nseed: 1\n")
    seed = there.rename(there.with_name("seed1"))
    state = json.loads((seed / "run.json").read_text()) | {"cwd": "/nowhere"}
    state["signature"] = sign_command(state)
    (seed / "run.json").write_text(json.dumps(state))
    done = call("resume", f"file://{seed}/", "--into", "many")
    assert f"--seeds 1-1 --run-dir {tmp_path / 'many'} --resume latest" in done.err


@pytest.mark.parametrize("missing", ["config.yaml", "run.json", "checkpoints"])
def test_what_a_mirror_lacks_is_said(missing, call, mirror, tmp_path, monkeypatch):
    url, there = mirror
    monkeypatch.chdir(tmp_path)
    (there / missing).rename(tmp_path / "gone")
    done = call("resume", url)
    assert done.code == 2
    todo = f"has no {missing}, .* yourself, with --run-dir runs/there --resume latest"
    expected = "has no checkpoint: check the address" if missing == "checkpoints" else todo
    assert re.search(expected, done.err)


def test_only_a_mirror_is_fetched_into_a_directory(call, mirror):
    done = call("resume", mirror[1], "--into", "a")
    assert (done.code, "is no URL of a mirror" in done.err) == (2, True)


def test_no_password_is_printed(call, mirror):
    state = json.loads((mirror[1] / "run.json").read_text()) | {"cwd": "/nowhere"}
    state["signature"] = sign_command(state)
    (mirror[1] / "run.json").write_text(json.dumps(state))
    done = call("resume", mirror[1], "--", "--mirror", "ftp://me:secret@host/a")
    assert "--mirror ftp://me:***@host/a" in done.err
    assert "secret" not in done.err
