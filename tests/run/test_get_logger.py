"""`get_logger`: names, places, errors, several sinks at once."""

from __future__ import annotations

import importlib.util
import pickle
import re

import pytest

from hooktrainer import RunDir, get_logger
from hooktrainer.log import read_csv, read_scalars


@pytest.mark.parametrize("nothing", [None, "", []])
def test_no_logger(tmp_path, nothing):
    assert get_logger(nothing, tmp_path, "exp") is None


def test_an_unknown_name_lists_the_near_ones(tmp_path):
    message = r"logger='tensorbord' is unknown. Did you mean tensorboard\? .*csv, tensorboard"
    with pytest.raises(ValueError, match=message):
        get_logger("tensorbord", tmp_path, "exp")


@pytest.mark.parametrize("kind", ["mlflow", "wandb"])
def test_a_missing_package_names_the_command(tmp_path, monkeypatch, kind):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == kind else find(n))
    with pytest.raises(ModuleNotFoundError, match=re.escape(f"pip install 'hooktrainer[{kind}]'")):
        get_logger(["csv", kind], tmp_path, "exp")
    assert not list(tmp_path.iterdir())


def test_resume_with_another_choice_of_sinks(tmp_path):
    first = get_logger("csv", tmp_path, "ppo/exp")
    first.log_scalar("a", 1.0, 1)
    state = first.state_dict()
    first.close()
    second = get_logger(["csv", "tensorboard"], tmp_path, "ppo/exp")
    second.load_state_dict(state)
    second.log_scalar("a", 2.0, 2)
    second.close()
    assert read_csv(tmp_path / "ppo/exp") == {"a": [(1, 1.0), (2, 2.0)]}
    assert read_scalars(tmp_path / "ppo/exp/tensorboard") == {"a": [(2, 2.0)]}


def test_loggers_pickle(tmp_path):
    logger = get_logger(["csv", "tensorboard"], tmp_path, "exp")
    logger.log_scalar("a", 1.0, 1)
    copy = pickle.loads(pickle.dumps(logger))
    copy.log_scalar("a", 2.0, 2)
    copy.close()
    logger.close()
    assert read_csv(tmp_path / "exp") == {"a": [(1, 1.0), (2, 2.0)]}
    assert read_scalars(tmp_path / "exp/tensorboard") == {"a": [(1, 1.0), (2, 2.0)]}


def test_the_state_of_a_run_without_an_id_goes_on_when_it_has_one(tmp_path):
    logger = get_logger("csv", RunDir(tmp_path / "run"), "first")
    logger.log_scalar("a", 1.0, 1)
    state = logger.state_dict()
    logger.log_scalar("a", 2.0, 2)
    logger.close()
    again = get_logger("csv", RunDir.create(tmp_path / "run", resume=True), "first")
    again.load_state_dict(state)
    again.log_scalar("a", 3.0, 2)
    again.close()
    assert read_csv(tmp_path / "run") == {"a": [(1, 1.0), (2, 3.0)]}
