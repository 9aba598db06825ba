"""An exported policy acts by itself as the saved one does, whatever it reads and does."""

from __future__ import annotations

from functools import cache, partial

import gymnasium as gym
import numpy as np
import onnxruntime
import pytest
import torch
from gymnasium import spaces
from marks import slow_except
from policy_envs import Leaving, Toy, pets
from torch import nn

from hooktrainer import CheckpointError, ConfigError, load_policy, play_episodes
from hooktrainer.collect.action_format import ClipParts
from hooktrainer.loop import Progress
from hooktrainer.networks import (
    CategoricalPolicy,
    DeterministicPolicy,
    LSTMMemory,
    MemoryTrunk,
    NetworkFactory,
    Policy,
    QNetwork,
    RunningNorm,
    TransformerMemory,
    distribution_for,
    mlp,
)
from hooktrainer.policies import PolicyModule, PolicyRecorder, export_policy
from hooktrainer.policies.contract import read_contract
from hooktrainer.policies.exported import compare

torch.set_num_threads(1)
BOX = spaces.Box(np.array([-2.0, 0.0], "float32"), np.array([2.0, 8.0], "float32"))
HYBRID = spaces.Dict({"kind": spaces.Discrete(3, start=2), "force": BOX})
TUPLE = spaces.Tuple((spaces.MultiDiscrete([3, 2]), spaces.MultiBinary(3)))
PLACES = spaces.Dict({"near": spaces.Box(-1.0, 1.0, (2,)), "room": spaces.Discrete(5, start=1)})
IMAGE = spaces.Box(0, 255, (36, 36, 3), np.uint8)
PLANES = spaces.Box(0, 1, (10, 10, 4), bool)


def actor(action: gym.Space, observation: gym.Space | None = None, mask: bool = False) -> Policy:
    """A policy with the encoders of the algorithms."""
    made = NetworkFactory(observation or Toy().observation_space, (8,))
    distribution = distribution_for(action)
    network = made.network(distribution.parameter_features)
    return Policy(
        network, distribution, made.in_keys, action_mask_key="action_mask" if mask else None
    )


def normalized() -> nn.Module:
    norm = RunningNorm(4)
    norm.update(3.0 + 2.0 * torch.randn(100, 4))
    return DeterministicPolicy(nn.Sequential(norm, *mlp(4, 2, (8,))), 2, low=-1.0, high=3.0)


def remembering(memory: nn.Module) -> Policy:
    trunk = MemoryTrunk(nn.Identity(), memory)
    return CategoricalPolicy(mlp(8, 3, (8,)), trunk.in_keys, trunk=trunk)


CASES = {
    "discrete": (lambda: actor(spaces.Discrete(3)), Toy),
    "normalized, within bounds": (normalized, lambda: Toy(action=BOX)),
    "gaussian, clipped": (lambda: actor(BOX), lambda: gym.wrappers.ClipAction(Toy(action=BOX))),
    "values of actions": (lambda: QNetwork(mlp(4, 3, (8,))), Toy),
    "mask": (lambda: actor(spaces.Discrete(3), mask=True), lambda: Toy(mask=3)),
    "image": (lambda: actor(spaces.Discrete(3), IMAGE), lambda: Toy(IMAGE)),
    "boolean image": (lambda: actor(spaces.Discrete(3), PLANES), lambda: Toy(PLANES)),
    "dict": (lambda: actor(spaces.Discrete(3), PLACES), lambda: Toy(PLACES)),
    "hybrid action": (lambda: actor(HYBRID), lambda: ClipParts(Toy(action=HYBRID))),
    "tuple action": (lambda: actor(TUPLE), lambda: Toy(action=TUPLE)),
    "several agents": (lambda: pets(masked=True), partial(Leaving, masks="info")),
    "lstm": (lambda: remembering(LSTMMemory(4, 8)), Toy),
    "transformer": (lambda: remembering(TransformerMemory(4, 8, 4)), Toy),
}


@pytest.fixture
def exported(save, tmp_path):
    def export(policy, env, observations=40, **options):
        saved, file = save(policy, env), tmp_path / "policy.onnx"
        return (
            saved,
            file,
            export_policy(saved, file, env=env(), observations=observations, **options),
        )

    return export


@pytest.fixture(scope="module")
def exported_case(tmp_path_factory):
    """Exports a case, once for all tests that change nothing."""

    @cache
    def export(case):
        make, env = CASES[case]
        torch.manual_seed(2)
        place = tmp_path_factory.mktemp("exported")
        PolicyRecorder(place / "policies", make(), env).save(Progress(frames=0))
        saved, file = place / "policies/latest", place / "policy.onnx"
        return saved, file, export_policy(saved, file, env=env(), observations=40)

    return export


@pytest.mark.parametrize("case", slow_except(CASES, "several agents", "lstm"))
def test_it_plays_the_same_episodes(case, exported_case):
    env = CASES[case][1]
    saved, file, contract = exported_case(case)
    assert contract.largest_difference < 1e-5
    ours, theirs = load_policy(file, trust=True), load_policy(saved, trust=True)
    for one, other in zip(
        play_episodes(ours, 7, 3, env=env()), play_episodes(theirs, 7, 3, env=env()), strict=True
    ):
        assert (one.length, one.return_) == (other.length, pytest.approx(other.return_, abs=1e-4))


@pytest.mark.parametrize("case", slow_except(CASES, "tuple action"))
def test_a_program_of_torch_is_compared_as_well(case, save, tmp_path):
    make, env = CASES[case]
    saved, file = save(make(), env), tmp_path / "a new folder/policy.pt2"
    contract = export_policy(saved, file, kind="program", env=env(), observations=40)
    assert contract.kind == "program"
    program = torch.export.load(file).module()
    module = PolicyModule(load_policy(saved, trust=True))
    assert contract.inputs[0].name == module.inputs[0]
    examples = [
        torch.ones(2, *one.shape, dtype=getattr(torch, one.dtype))
        for one in (*contract.inputs, *contract.hidden_states)
    ]
    for ours, theirs in zip(program(*examples), module(*examples), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_contract_has_the_bounds_of_each_groups_space(exported_case):
    _, file, contract = exported_case("several agents")
    found = {one.name: (one.group, one.shape, one.low) for one in contract.inputs}
    assert found["cat.observation"] == ("cat", (2, 2), -np.inf)
    assert found["cat.action_mask"] == ("cat", (2, 4), None)
    assert contract.agents == {"cat": ("cat_0", "cat_1"), "dog": ("dog_0",)}
    acts = {one.name: (one.group, one.shape, one.dtype) for one in contract.outputs}
    assert acts == {
        "cat.action": ("cat", (2,), "int64"),
        "dog.action": ("dog", (1, 1), "float32"),
    }
    assert read_contract(file).inputs == contract.inputs


def test_twenty_lines_of_numpy_play_it(exported_case):
    import yaml

    saved, file, _ = exported_case("lstm")
    session = onnxruntime.InferenceSession(file)
    contract = yaml.safe_load(file.with_suffix(".yaml").read_text())
    states = {
        state["input"]: np.broadcast_to(
            np.asarray(state["first"], state["dtype"]), (1, *state["shape"])
        )
        for state in contract["hidden_states"]
    }
    policy = load_policy(saved, trust=True)
    for observation in np.random.default_rng(0).normal(size=(10, 4)).astype("float32"):
        (read,) = contract["inputs"]
        action, *following = session.run(None, {read["name"]: observation[None], **states})
        states = dict(zip(states, following, strict=True))
        assert action[0] == policy(observation)


DRAWN = {
    "discrete": (lambda: actor(spaces.Discrete(3)), Toy),
    "gaussian": (lambda: actor(BOX), lambda: gym.wrappers.ClipAction(Toy(action=BOX))),
    "hybrid action": (lambda: actor(HYBRID), lambda: ClipParts(Toy(action=HYBRID))),
    "bits": (lambda: actor(spaces.MultiBinary(3)), lambda: Toy(action=spaces.MultiBinary(3))),
}


@pytest.mark.parametrize("case", slow_except(DRAWN, "discrete"))
def test_it_samples_from_the_same_distribution(case, exported):
    make, env = DRAWN[case]
    _, file, contract = exported(make(), env, observations=2_000, deterministic=False)
    assert contract.samples
    with pytest.raises(ConfigError, match="samples: load it with deterministic=False"):
        load_policy(file)
    policy = load_policy(file, deterministic=False, trust=True)
    assert len(play_episodes(policy, 7, 3, env=env())) == 3


def test_a_distribution_that_onnx_lacks_is_refused(save, tmp_path):
    env = lambda: Toy(action=BOX)  # noqa: E731
    policy = Policy(mlp(4, 4, (8,)), distribution_for(BOX, "beta"))
    with pytest.raises(ConfigError, match=r"cannot be exported: .*_dirichlet"):
        export_policy(
            save(policy, env), tmp_path / "p.onnx", env=env(), deterministic=False, observations=9
        )
    assert not (tmp_path / "p.onnx").exists()


def test_what_differs_is_not_written():
    inputs, results = [torch.zeros(50, 2)], [torch.zeros(50), torch.zeros(50, dtype=torch.int64)]

    def returns(number, index):
        return lambda arrays: [
            np.full(len(arrays[0]), number, "float32"),
            np.full(len(arrays[0]), index),
        ]

    assert compare(returns(5e-5, 0), inputs, results, 1e-4) == pytest.approx(5e-5)
    for wrong, said in (
        (returns(2e-4, 0), r"by up to 0\.0002, which is more than the tolerance 0\.0001"),
        (returns(np.nan, 0), "by up to nan"),
        (returns(0.0, 1), r"differently for 1 of 1 observations"),
        (lambda arrays: [np.zeros(1), np.zeros(1, int)], r"float64\[1\] in place of float32\[1\]"),
    ):
        with pytest.raises(ConfigError, match=said):
            compare(wrong, inputs, results, 1e-4)
    drawn = [torch.rand(2_000)]
    rng = np.random.default_rng(0)
    compare(lambda a: [rng.random(len(a[0]), "float32")], drawn, drawn, None)
    with pytest.raises(ConfigError, match="another distribution"):
        compare(lambda a: [rng.random(len(a[0]), "float32") ** 2], drawn, drawn, None)


def test_a_changed_file_is_refused(exported):
    _, file, _ = exported(actor(spaces.Discrete(3)), Toy)
    with pytest.raises(ConfigError, match="is exported already"):
        export_policy(file, file, env=Toy())
    contract = file.with_suffix(".yaml")
    text = contract.read_text()
    for broken in (
        text.replace("schema: 1", "schema: 2"),
        text.replace("dtype: int64", "dtype: object"),
        "[",
        text.replace("samples: false", ""),
    ):
        contract.write_text(broken)
        with pytest.raises(CheckpointError, match=r"policy\.onnx"):
            load_policy(file)
    contract.write_text(text)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(CheckpointError, match="cannot be loaded: it does not match the hash"):
        load_policy(file)


def test_nothing_else_is_replaced(save, tmp_path):
    saved = save(actor(spaces.Discrete(3)), Toy)
    (tmp_path / "policy.yaml").write_text("mine: 1\n")
    for file, options, said in (
        ("policy.onnx", {}, r"policy\.yaml would be the contract of policy\.onnx"),
        ("policy", {}, r"ends in \.onnx"),
        ("p.onnx", {"kind": "program"}, r"ends in \.pt2"),
        ("p.onnx", {"observations": 0}, "observations=0"),
        ("p.onnx", {"tolerance": -1.0}, "tolerance=-1"),
    ):
        with pytest.raises(ConfigError, match=said):
            export_policy(saved, tmp_path / file, env=Toy(), **options)
    assert (tmp_path / "policy.yaml").read_text() == "mine: 1\n"
    with pytest.raises(CheckpointError, match=r"there is no .*p\.onnx; hooktrainer export"):
        load_policy(tmp_path / "p.onnx")


def test_the_command_writes_both_files(tmp_path, save):
    from hooktrainer.cli import main

    saved = save(CategoricalPolicy(mlp(4, 2, (8,))), "CartPole-v1")
    file = tmp_path / "out" / "p.onnx"
    assert main(["export", str(saved), "--onnx", str(file), "--observations", "30", "--json"]) == 0
    assert file.with_suffix(".yaml").is_file()
    assert main(["export", str(saved)]) == 2
    assert main(["play", str(file), "--episodes", "2"]) == 0
