"""Saved policies on the disk: complete or absent, found by name, harmless whatever they hold."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import xxhash
from policy_envs import Toy

from hooktrainer import CheckpointError
from hooktrainer.checkpoint.housekeeping import TRASH, UNFINISHED, sweep
from hooktrainer.errors import DamagedCheckpointError
from hooktrainer.modules import CategoricalPolicy, mlp
from hooktrainer.policies import SavedPolicy, find_policy, list_policies, load_policy
from hooktrainer.policies.evaluation import Evaluation
from hooktrainer.policies.files import read_content, read_facts
from hooktrainer.policies.recorder import PolicyRecorder
from hooktrainer.policies.writing import change_facts, write_policy
from hooktrainer.progress import Progress

sys.path.insert(0, str(Path(__file__).parents[1] / "checkpoint"))

from fault_injection import Crash, FaultyOS, VolatileDisk, installed, scratch

ZEROS = np.zeros(4, "float32")


def policy() -> CategoricalPolicy:
    return CategoricalPolicy(mlp(4, 3, (8,)))


def rate(path: Path, value: float) -> None:
    change_facts(path, evaluation=Evaluation(0, (value,), (1,)).encode())


def test_what_is_known_of_a_policy(save):
    path = save(policy(), "CartPole-v1", 120, env_kwargs={"sutton_barto_reward": True})
    saved = SavedPolicy.open(path)
    assert (saved.frames, saved.optim_steps, saved.seconds) == (120, 12, 1.5)
    assert (saved.env_id, saved.env_kwargs) == ("CartPole-v1", {"sutton_barto_reward": True})
    assert saved.evaluation is None
    assert np.isnan(saved.mean)
    assert saved.versions["torch"] == torch.__version__
    assert sum(file.stat().st_size for file in path.iterdir()) < 10_000
    env = saved.load().make_env()
    assert env.unwrapped._sutton_barto_reward
    env.close()


def test_the_file_is_plain_data_and_tensors(save):
    content = torch.load(save(policy()) / "policy.pt", weights_only=True)
    assert sorted(content) == ["program", "state", "weights"]
    assert {step[1] for step in json.loads(content["program"])["steps"]} == {
        "aten.t.default",
        "aten.addmm.default",
        "aten.tanh.default",
        "aten.argmax.default",
    }


def test_policies_are_found_by_run_frames_latest_best_and_path(save, tmp_path):
    paths = {frames: save(policy(), frames=frames) for frames in (0, 100, 1000)}
    run = tmp_path / "run"
    assert [saved.frames for saved in list_policies(run)] == [0, 100, 1000]
    assert list_policies(run / "policies") == list_policies(run)
    for spec in (run, f"{run}@latest", run / "policies/latest", paths[1000], run / "policies"):
        assert find_policy(spec).frames == 1000
    assert find_policy(f"{run}@100").path == paths[100]
    rate(paths[0], 3.0)
    rate(paths[100], 5.0)
    assert find_policy(f"{run}@best").frames == 100


def test_the_directory_of_policies_may_be_copied_elsewhere(save, tmp_path):
    save(policy(), frames=100)
    copy = shutil.copytree(tmp_path / "run/policies", tmp_path / "copy", symlinks=True)
    shutil.rmtree(tmp_path / "run")
    assert [saved.frames for saved in list_policies(copy)] == [100]
    assert load_policy(f"{copy}@100").frames == load_policy(copy / "latest").frames == 100


def test_latest_works_without_links(save, tmp_path):
    save(policy(), frames=7)
    (tmp_path / "run/policies/latest").unlink()
    assert load_policy(tmp_path / "run/policies/latest").frames == 7


def test_what_is_not_there_is_said_with_what_there_is(save, tmp_path):
    run = save(policy(), frames=100).parents[1]
    with pytest.raises(CheckpointError, match=r"no policy '7'.*has those at frames 100"):
        find_policy(f"{run}@7")
    with pytest.raises(CheckpointError, match="none is the best: run hooktrainer policies"):
        find_policy(f"{run}@best")
    with pytest.raises(CheckpointError, match=r"there is no run .*elsewhere"):
        find_policy(tmp_path / "elsewhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"empty holds no run: no run.json, no policies"):
        find_policy(tmp_path / "empty")
    (tmp_path / "empty/run.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"has none: train with --snapshots N"):
        find_policy(tmp_path / "empty")
    with pytest.raises(CheckpointError, match=r"no policy .*step_000000000009"):
        find_policy(run / "policies" / "step_000000000009")


class Bomb:
    """Makes a directory when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def replace_content(path: Path, data: bytes) -> None:
    """Put other bytes into policy.pt, and their hash into policy.json."""
    (path / "policy.pt").write_bytes(data)
    record = {"size": len(data), "xxh3_128": xxhash.xxh3_128_hexdigest(data)}
    change_facts(path, files={"policy.pt": record})


@pytest.mark.parametrize("form", ["pickle", "torch"])
def test_a_planted_pickle_does_not_run(form, save, tmp_path):
    path, planted = save(policy()), tmp_path / "planted"
    bomb = {"program": "", "weights": {}, "state": Bomb(planted)}
    if form == "pickle":
        data = pickle.dumps(bomb)
    else:
        torch.save(bomb, tmp_path / "bomb.pt")
        data = (tmp_path / "bomb.pt").read_bytes()
    replace_content(path, data)
    with pytest.raises(CheckpointError, match="holds more than plain data and tensors"):
        load_policy(path)
    assert not planted.exists()


@pytest.mark.parametrize(
    ("operator", "reason"),
    [
        ("aten.add_.Tensor", "writes to its arguments"),
        ("aten.rand.default", "draws random numbers"),
        ("aten.from_file.default", "does more than calculate"),
        ("aten.save.default", "does more than calculate"),
        ("aten.nothing.default", "lacks"),
        ("prims.add.default", "is not one of ATen"),
        ("os.system", "lacks"),
    ],
)
def test_an_operator_that_does_more_than_calculate_is_refused(operator, reason, save, tmp_path):
    path = save(policy())
    content = torch.load(path / "policy.pt", weights_only=True)
    program = json.loads(content["program"])
    program["steps"][0][1] = operator
    torch.save({**content, "program": json.dumps(program)}, tmp_path / "changed.pt")
    replace_content(path, (tmp_path / "changed.pt").read_bytes())
    with pytest.raises(CheckpointError, match=reason):
        load_policy(path)


@pytest.mark.parametrize("file", ["policy.pt", "policy.json"])
def test_damage_is_found(file, save):
    path = save(policy())
    data = bytearray((path / file).read_bytes())
    data[len(data) // 2 if file == "policy.pt" else 0] ^= 0xFF
    (path / file).write_bytes(bytes(data))
    with pytest.raises(DamagedCheckpointError, match=rf"{path} is damaged: {file}"):
        load_policy(path)
    (path / file).unlink()
    with pytest.raises(DamagedCheckpointError, match=f"{file} is missing"):
        load_policy(path)


def test_another_schema_is_refused(save):
    path = save(policy())
    change_facts(path, schema=2)
    with pytest.raises(CheckpointError, match="has schema 2, and this version of hooktrainer"):
        load_policy(path)


def save_three(directory: Path) -> None:
    """Write two policies, the second one twice: the first of these is replaced."""
    for frames, value in ((1, 1.0), (2, 5.0), (2, 2.0)):
        content = {"program": "x" * 100, "weights": torch.full((50,), value)}
        write_policy(directory / f"step_{frames:012d}", {"frames": frames}, content)


def check(directory: Path) -> None:
    """What is there is complete, and what is left over is swept away."""
    for path in directory.glob("step_*"):
        facts = read_facts(path)
        weights = read_content(path, facts)["weights"]
        assert weights.shape == (50,)
        assert weights.unique().tolist() in {1: ([1.0],), 2: ([2.0], [5.0])}[facts["frames"]]
    sweep(directory, UNFINISHED, TRASH)
    names = {path.name for path in directory.glob("*")}
    assert names <= {"step_000000000001", "step_000000000002", "latest"}


def test_a_kill_at_any_moment_leaves_no_half_policy():
    with scratch() as root, installed(counter := FaultyOS()):
        save_three(root / "policies")
    for fail_at in range(1, counter.count + 1):
        with scratch() as root:
            with installed(FaultyOS(fail_at)), pytest.raises(Crash):
                save_three(root / "policies")
            check(root / "policies")


def test_a_power_loss_at_any_moment_leaves_no_half_policy():
    with scratch() as root, installed(counter := VolatileDisk(root)):
        save_three(root / "policies")
    for fail_at in range(1, counter.count + 1):
        with scratch() as root, scratch() as target:
            disk = VolatileDisk(root, fail_at)
            with installed(disk), pytest.raises(Crash):
                save_three(root / "policies")
            disk.after_power_loss(target / "disk")
            check(target / "disk" / "policies")


def test_a_full_disk_stops_no_training(tmp_path, caplog):
    recorder = PolicyRecorder(tmp_path / "policies", policy(), Toy)
    with installed(FaultyOS(space=100)):
        recorder.save(Progress(frames=1))
        recorder.wait()
    assert "a policy could not be saved; training goes on" in caplog.text
    recorder.save(Progress(frames=2))
    recorder.wait()
    assert [saved.frames for saved in list_policies(tmp_path)] == [2]


def test_facts_are_written_one_a_line(tmp_path):
    write_policy(tmp_path / "step_000000000001", {"frames": 1, "env": {"id": "a"}}, {})
    lines = (tmp_path / "step_000000000001/policy.json").read_text().splitlines()
    assert lines[:4] == ["{", '  "schema": 1,', '  "frames": 1,', '  "env": {"id": "a"},']
