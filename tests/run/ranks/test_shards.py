"""Runs of four shards, whatever number of processes there is, and while that changes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
from outcomes import rows
from rank_processes import free_port
from toy import ends
from warm_python import executable

from hooktrainer.algorithms import PPO
from hooktrainer.errors import ConfigError
from hooktrainer.run import Ranks

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="torch was built without torch.distributed"
)
SHARDS = 4


def start(path: Path, number: int = 1, **options: Any) -> list[subprocess.Popen[str]]:
    """Start processes as ``torchrun`` does, or one as it is started alone."""
    options = {"shards": SHARDS, "resume": "latest", **options}
    port, ranks = str(free_port()), []
    for rank in range(number):
        environ = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
        if number > 1:
            numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": number}
            environ |= {k: str(v) for k, v in numbers.items()}
            environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        command = [executable(), toy.__file__, str(path), json.dumps(options)]
        ranks.append(
            subprocess.Popen(
                command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
    return ranks


def wait(ranks: Sequence[subprocess.Popen[str]]) -> tuple[list[int], str]:
    """Their exit codes, and what they printed."""
    printed = [rank.communicate(timeout=180)[0] for rank in ranks]
    return [rank.returncode for rank in ranks], "\n".join(printed)


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("alone") / "run"
    codes, printed = wait(start(path))
    assert codes == [0], printed
    assert "holds no run: it begins" in printed
    assert "Where the time went" in printed
    return path


@pytest.mark.slow
def test_every_shard_has_its_own_data_and_the_same_parameters(alone):
    shards = ends(alone, SHARDS)
    assert len({shard["parameters"] for shard in shards}) == 1
    assert len({shard["collector"] for shard in shards}) == SHARDS
    assert {shard["frames"] for shard in shards} == {512}
    values = {line.split(",")[1]: float(line.split(",")[2]) for line in rows(alone)[1:]}
    assert (values["toy/rank"], values["toy/rows"]) == (1.5, 1)  # means over the four


@pytest.mark.slow
def test_three_processes_give_the_bits_of_one(alone, tmp_path):
    codes, printed = wait(start(tmp_path / "run", 3))
    assert codes == [0, 0, 0], printed
    assert ends(tmp_path / "run", SHARDS) == ends(alone, SHARDS)
    assert rows(tmp_path / "run") == rows(alone)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", range(int(os.environ.get("HOOKTRAINER_SCHEDULES", "2"))))
def test_processes_that_come_and_go_give_the_bits_of_one(schedule, alone, tmp_path):
    draw, path, past = random.Random(schedule), tmp_path / "run", []
    for _ in range(draw.randint(2, 4)):
        number = draw.randint(1, SHARDS)
        how = draw.choice(("one shard is killed", "a process is asked to end", "all are killed"))
        trouble, batch = None, draw.randint(1, 8)
        if how == "one shard is killed":
            trouble = ("SIGKILL", draw.randrange(SHARDS), batch)
        elif how == "a process is asked to end":
            trouble = ("SIGTERM", draw.randrange(SHARDS), batch)
        ranks = start(path, number, trouble=trouble)
        if trouble is None:
            time.sleep(draw.uniform(0.3, 4))
            for rank in ranks:
                rank.send_signal(signal.SIGKILL)
        codes, printed = wait(ranks)
        past.append((number, how, batch, codes, printed))
    codes, printed = wait(start(path, draw.randint(1, SHARDS)))
    assert not any(codes), (printed, past)
    theirs, whole = ends(path, SHARDS), ends(alone, SHARDS)
    if "nothing left to do" in printed:  # then no process takes up the random state
        for end in (*theirs, *whole):
            end.pop("rng")
    assert theirs == whole, past
    assert rows(path) == rows(alone), past


def test_more_processes_than_shards_are_refused(monkeypatch):
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="--shards 1: 2 processes were started"):
        Ranks.join(shards=1)


def test_a_notebook_has_no_program_that_shards_could_run(monkeypatch):
    monkeypatch.setattr(sys, "argv", [""])
    with pytest.raises(ConfigError, match=r"--shards 2: .*Put it into a file"):
        Ranks.join(shards=2)


def test_seeds_are_not_shared_out():
    with pytest.raises(ConfigError, match="shards=2 with several seeds"):
        PPO(env="CartPole-v1", shards=2, seeds=[0, 1]).train_seeds()


@pytest.mark.slow
def test_a_shard_that_fails_at_its_start_ends_the_others(tmp_path):
    # The others would wait for it for ten minutes; `wait` gives up before.
    codes, printed = wait(start(tmp_path / "run", num_envs=4, fails_on=2))
    assert codes != [0]
    assert "cannot start" in printed


FAILS_EARLY = """
from hooktrainer.run import Ranks

if __name__ == "__main__":
    ranks = Ranks.join(shards=2)
    if ranks.rank == 0:
        raise ValueError("before training")
    ranks.all_gather("the start", 0)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("warm_python")
def test_an_error_before_training_ends_the_other_shards_at_once(tmp_path):
    (tmp_path / "script.py").write_text(FAILS_EARLY)
    command = [sys.executable, str(tmp_path / "script.py")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=25)  # GRACE is 30
    assert ended.returncode == 1
    assert "ValueError: before training" in ended.stderr
    assert "another rank has ended" in ended.stderr
