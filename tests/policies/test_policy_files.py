"""Saved policies on the disk: complete or absent, found by name, harmless whatever they hold."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import xxhash
from policy_envs import Toy
from safetensors.torch import save as save_tensors
from sealed import FACTS, POLICY, change_facts, read_facts

from hooktrainer import CheckpointError
from hooktrainer.cli import main
from hooktrainer.errors import DamagedCheckpointError
from hooktrainer.loop import Progress
from hooktrainer.networks import CategoricalPolicy, mlp
from hooktrainer.policies import (
    Evaluation,
    PolicyRecorder,
    SavedPolicy,
    find_policy,
    list_policies,
    load_policy,
    policy_files,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "store"))

from fault_injection import FaultyOS, installed

ZEROS = np.zeros(4, "float32")


def policy() -> CategoricalPolicy:
    return CategoricalPolicy(mlp(4, 3, (8,)))


@pytest.fixture
def path(copy: Callable[..., Path]) -> Path:
    """The place of a policy, of which a test may do what it likes with the files."""
    return copy(policy)


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
    env = load_policy(saved).make_env()
    assert env.unwrapped._sutton_barto_reward
    env.close()


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
    copy = shutil.move(run / "policies", tmp_path / "copy")  # of the policies alone
    assert load_policy(f"{copy}@100").frames == 100
    assert load_policy(copy / "latest").frames == 1000


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
    """Put other bytes into the file of a policy, and their hash into policy.json."""
    (path / POLICY).write_bytes(data)
    record = {"size": len(data), "xxh3_128": xxhash.xxh3_128_hexdigest(data)}
    change_facts(path, files={POLICY: record})


@pytest.mark.parametrize("form", ["pickle", "torch"])
def test_a_planted_pickle_does_not_run(form, path, tmp_path):
    planted = tmp_path / "planted"
    if form == "pickle":
        data = pickle.dumps(Bomb(planted))
    else:
        torch.save(Bomb(planted), tmp_path / "bomb.pt")
        data = (tmp_path / "bomb.pt").read_bytes()
    replace_content(path, data)
    with pytest.raises(DamagedCheckpointError, match=rf"{path} is damaged: {POLICY}"):
        load_policy(path)
    assert not planted.exists()


@pytest.mark.parametrize(
    ("operator", "reason"),
    [
        ("aten.add_.Tensor", "which is not one of those"),
        ("aten.rand.default", "which draws random numbers"),
        ("aten.from_file.default", "which is not one of those"),
        ("aten.as_strided.default", "which is not one of those"),
        ("aten.empty.memory_format", "which is not one of those"),
        ("aten._sparse_coo_tensor_unsafe.default", "which is not one of those"),
        ("aten.mul.left_t", "which is not one of those"),
        ("aten.add.Nothing", "lacks"),
        ("aten.add.out", "writes to its arguments"),
        ("aten.view.dtype", "which is not one of those"),
        ("os.system", "which is not one of those"),
    ],
)
def test_an_operator_that_does_more_than_calculate_is_refused(operator, reason, path):
    data = (path / POLICY).read_bytes()
    header = header_of(data)
    program = json.loads(header["__metadata__"]["program"])
    program["steps"][0][1] = operator
    header["__metadata__"]["program"] = json.dumps(program)
    replace_content(path, with_header(data, header))
    with pytest.raises(CheckpointError, match=reason):
        load_policy(path)


@pytest.mark.parametrize("file", [POLICY, FACTS])
def test_every_changed_byte_and_every_missing_end_is_found(file, path):
    """One bit of every byte in turn, and every end that may be missing."""
    evaluated = Evaluation(5, (1.0, 2.0), (3, 4), 0.5)
    change_facts(path, evaluation=evaluated.encode())
    good = (path / file).read_bytes()
    step = max(1, len(good) // 400)
    changed = [
        good[:n] + bytes([good[n] ^ 1 << n % 8]) + good[n + 1 :] for n in range(0, len(good), step)
    ]
    changed += [good[:n] for n in range(0, len(good), step)] + [
        good + b"\n",
        good + b"\0",
        good * 2,
    ]
    for data in changed:
        (path / file).write_bytes(data)
        with pytest.raises(DamagedCheckpointError, match=rf"{path} is damaged: {file}"):
            load_policy(path)
    (path / file).unlink()
    with pytest.raises(DamagedCheckpointError, match=rf"{file} is missing"):
        load_policy(path)
    (path / file).write_bytes(good)
    assert load_policy(path).evaluation == evaluated


def header_of(data: bytes) -> dict:
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])


def with_header(data: bytes, header: object, length: int | None = None) -> bytes:
    """The file with another header, of which its beginning may tell another length."""
    body = data[8 + int.from_bytes(data[:8], "little") :]
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + body


def lies(data: bytes) -> dict[str, bytes]:
    """Files whose sizes do not fit, though each hash does."""
    header = header_of(data)
    name = next(n for n in header if n != "__metadata__" and len(header[n]["shape"]) == 2)

    def told(**fields: object) -> bytes:
        return with_header(data, header | {name: header[name] | fields})

    begin, end = header[name]["data_offsets"]
    rows, columns = header[name]["shape"]
    return {
        "a huge shape": told(shape=[1 << 40, 1 << 40]),
        "a negative shape": told(shape=[-rows, -columns]),
        "an unknown type": told(dtype="PICKLE"),
        "an end beyond the file": told(data_offsets=[begin, end + (1 << 40)]),
        "all of it larger": told(shape=[1 << 50], data_offsets=[begin, begin + (4 << 50)]),
        "a header beyond the file": with_header(data, header, 1 << 62),
        "no header": b"",
        "no program": with_header(data, {n: v for n, v in header.items() if n != "__metadata__"}),
        "no JSON": with_header(data, b"{" * 100_000),
        "a strange name": with_header(
            data, {("../../x" if n == name else n): v for n, v in header.items()}
        ),
    }


@pytest.mark.parametrize("lie", list(range(10)))
def test_sizes_are_compared_before_memory_is_taken(lie, path):
    name, data = list(lies((path / POLICY).read_bytes()).items())[lie]
    replace_content(path, data)
    with pytest.raises(CheckpointError, match=rf"{path}") as caught:
        load_policy(path)
    assert "\n" not in str(caught.value), name


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("frames", -1),
        ("frames", True),
        ("seconds", float("nan")),
        ("time", 1e300),
        ("time", float("nan")),
        ("frame_skip", [1]),
        ("evaluation", {"seed": 0, "returns": [], "lengths": []}),
        ("evaluation", {"seed": 0, "returns": ["1"], "lengths": [1]}),
        ("evaluation", {"seed": 0, "returns": [1.0], "lengths": [1, 2]}),
        ("files", {"../../secret": {"size": 1, "xxh3_128": ""}}),
        ("versions", {"torch": {"a": 1}}),
        ("git_commit", ["x"]),
    ],
)
def test_facts_that_cannot_be_are_damage(field, value, path):
    change_facts(path, **{field: value})
    with pytest.raises(DamagedCheckpointError, match=rf"{path} is damaged: policy\.json"):
        find_policy(path)
    assert list_policies(path.parents[1]) == []


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "O"},
        {"shape": [1 << 35]},
        {"shape": [1 << 62, 1 << 62]},
        {"shape": [-4]},
        {"shape": [1] * 100},
        {"start": [[0]] * 1000},
        {"path": [-1]},
        {"keys": 7},
        {"parts": []},
    ],
)
def test_observations_that_cannot_be_are_damage(change, path, capsys):
    interface = read_facts(path)["interface"]
    interface["inputs"][0] |= change
    if "parts" in change:  # at the end of a long path
        interface["groups"][0]["action"]["parts"][0]["path"] = ["a"] * 100_000
    change_facts(path, interface=interface)
    with pytest.raises(CheckpointError, match=rf"{path}"):
        load_policy(path)
    assert main(["policies", "show", str(path)]) in (0, 1)  # 0 where its size alone is refused
    assert len(capsys.readouterr().err.splitlines()) <= 1


def test_a_boolean_is_0_or_1(path):
    byte = torch.tensor([2], dtype=torch.uint8).view(torch.bool)
    metadata = header_of((path / POLICY).read_bytes())["__metadata__"]
    replace_content(path, save_tensors({"weights/mask": byte}, metadata))
    with pytest.raises(DamagedCheckpointError, match="mask is not boolean"):
        load_policy(path)


@pytest.mark.parametrize("kind", ["link", "pipe"])
@pytest.mark.parametrize("file", [POLICY, FACTS])
def test_only_its_own_files_are_read(kind, file, path, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    (path / file).rename(elsewhere)
    if kind == "link":
        (path / file).symlink_to(elsewhere)
    else:
        os.mkfifo(path / file)
    with pytest.raises(DamagedCheckpointError, match=rf"{path} is damaged: {file}"):
        load_policy(path)


def test_links_to_policies_elsewhere_are_not_followed(save, tmp_path):
    path = save(policy(), frames=100)
    other = save(policy(), frames=7, run="other")
    (path.parent / "step_000000000007").symlink_to(other)
    assert [saved.frames for saved in list_policies(tmp_path / "run")] == [100]
    (tmp_path / "mine").symlink_to(other)  # what a user names is his
    assert find_policy(tmp_path / "mine").frames == 7


def test_one_of_the_same_frames_takes_the_place_of_the_former(save):
    first, second = save(policy(), frames=7), save(policy(), frames=7)
    assert not first.exists()
    assert second.exists()


def test_a_larger_file_than_may_be_read_is_not_read(path, monkeypatch):
    monkeypatch.setattr(policy_files, "MOST_FACTS", 100)
    with pytest.raises(DamagedCheckpointError, match=r"bytes, more than 100"):
        load_policy(path)


def test_another_schema_is_refused(path):
    change_facts(path, schema=3)
    with pytest.raises(CheckpointError, match="has schema 3, and this version of hooktrainer"):
        load_policy(path)


def test_a_full_disk_stops_no_training(tmp_path, caplog):
    recorder = PolicyRecorder(tmp_path / "policies", policy(), Toy)
    with installed(FaultyOS(space=100)):
        recorder.save(Progress(frames=1))
    assert "a policy could not be saved; training continues" in caplog.text
    recorder.save(Progress(frames=2))
    assert [saved.frames for saved in list_policies(tmp_path)] == [2]
