"""A policy that was saved and loaded does what the one in training does, whatever its kind."""

from __future__ import annotations

import copy

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from marks import slow_except
from policy_envs import Toy
from tensordict import TensorDict
from tensordict.nn import (
    InteractionType,
    TensorDictModule,
    TensorDictModuleBase,
    TensorDictSequential,
)
from tensordict.nn.probabilistic import interaction_type, set_interaction_type
from torch import nn
from torchrl.data import Unbounded
from torchrl.envs import TensorDictPrimer
from torchrl.modules import (
    GRUModule,
    LSTMModule,
    NormalParamExtractor,
    ProbabilisticActor,
    TanhNormal,
)

from hooktrainer import CheckpointError, ConfigError, VectorCollector
from hooktrainer.loop import Progress
from hooktrainer.networks import (
    AdditiveGaussian,
    CategoricalPolicy,
    DeterministicPolicy,
    DiagonalGaussianPolicy,
    EpsilonGreedy,
    NetworkFactory,
    Policy,
    QNetwork,
    RunningNorm,
    StateDependentGaussian,
    TanhGaussianPolicy,
    distribution_for,
    mlp,
)
from hooktrainer.policies import PolicyRecorder, load_policy

BOX = spaces.Box(np.array([-2.0, 0.0], "float32"), np.array([2.0, 8.0], "float32"))


def box_env() -> gym.Env:
    return Toy(action=BOX)


def normalized(out: int) -> nn.Module:
    norm = RunningNorm(4)
    norm.update(3.0 + 2.0 * torch.randn(100, 4))
    return nn.Sequential(norm, *mlp(4, out, (8,)))


def state_dependent() -> Policy:
    network = nn.Sequential(*normalized(6), nn.Tanh())
    return Policy(network, StateDependentGaussian(6, (2,), -1.0))


def torchrl_actor() -> nn.Module:
    network = nn.Sequential(mlp(4, 4, (8,)), NormalParamExtractor())
    return ProbabilisticActor(
        TensorDictModule(network, ["observation"], ["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
    )


KINDS = {
    "categorical": (lambda: CategoricalPolicy(mlp(4, 3, (8,))), Toy),
    "normalized": (lambda: CategoricalPolicy(normalized(3)), Toy),
    "gaussian": (lambda: DiagonalGaussianPolicy(normalized(2), 2), box_env),
    "tanh gaussian": (
        lambda: TanhGaussianPolicy(normalized(4), 2, low=[-2.0, 0.0], high=[2.0, 8.0]),
        box_env,
    ),
    "deterministic": (lambda: DeterministicPolicy(mlp(4, 2, (8,)), 2, low=-1.0, high=3.0), box_env),
    "with noise": (lambda: AdditiveGaussian(DeterministicPolicy(mlp(4, 2, (8,)), 2)), box_env),
    "q network": (lambda: QNetwork(mlp(4, 3, (8,))), Toy),
    "epsilon greedy": (lambda: EpsilonGreedy(QNetwork(mlp(4, 3, (8,)))), Toy),
    "noise of the state": (lambda: state_dependent(), box_env),
    "torchrl": (torchrl_actor, box_env),
    "plain module": (lambda: nn.Sequential(nn.Linear(4, 2), nn.Tanh()), box_env),
}


def act(policy: nn.Module, observation: torch.Tensor) -> torch.Tensor:
    with set_interaction_type(InteractionType.DETERMINISTIC), torch.no_grad():
        if hasattr(policy, "in_keys"):
            return policy(TensorDict(observation=observation, batch_size=len(observation)))[
                "action"
            ]
        return policy(observation)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_policy_takes_the_same_actions(kind, reload):
    make, env = KINDS[kind]
    policy = make()
    loaded = reload(policy, env)
    observation = torch.randn(32, 4) * 3
    batch = loaded(observation.numpy())
    torch.testing.assert_close(torch.from_numpy(batch), act(policy, observation))
    assert len(np.unique(batch)) > 1
    space = loaded.make_env().action_space
    for row, action in zip(observation.numpy(), batch, strict=True):
        np.testing.assert_allclose(loaded(row), action, rtol=1e-5, atol=1e-6)
        assert (loaded(row).shape, loaded(row).dtype) == (space.shape, space.dtype)


class Scaled(nn.Module):
    """Has a number that is not a tensor."""

    scale = 1.0

    def forward(self, observation):
        return self.scale * observation[..., :2]


def masked_env() -> gym.Env:
    return Toy(mask=3)


def test_a_mask_from_the_info_is_a_keyword(reload):
    policy = CategoricalPolicy(mlp(4, 3, (8,)), action_mask_key="action_mask")
    loaded = reload(policy, masked_env)
    mask = np.array([[True, False, True], [False, True, False], [False, False, True]])
    actions = loaded(np.zeros((3, 4)), action_mask=mask)
    assert actions[1:].tolist() == [1, 2]
    assert actions[0] in (0, 2)
    assert loaded(np.zeros(4), action_mask=mask[1]) == 1
    with pytest.raises(ConfigError, match="needs the keyword action_mask"):
        loaded(np.zeros(4))


def dict_env() -> gym.Env:
    box = spaces.Box(-1.0, 1.0, (2,))
    space = spaces.Dict({"near": box, "deep": spaces.Dict({"far": box}), "unused": box})
    return Toy(space, BOX)


def test_a_dict_observation_is_read_by_its_keys(reload):
    policy = DeterministicPolicy(mlp(4, 2, (8,)), 2, in_keys=["near", ("deep", "far")])
    loaded = reload(policy, dict_env)
    near, far = torch.randn(5, 2), torch.randn(5, 2)
    expected = policy.act(near, far)["action"]
    actions = loaded({"near": near.numpy(), "deep": {"far": far.numpy()}})
    np.testing.assert_allclose(actions, expected.numpy(), rtol=1e-5, atol=1e-6)
    with pytest.raises(ConfigError, match=r"lacks 'deep.far'"):
        loaded({"near": near.numpy()})


class OfDict(nn.Module):
    """Takes a dict, as a function does that a collector calls."""

    def forward(self, observation):
        return observation["near"] + observation["deep"]["far"]


def test_a_module_that_takes_a_dict(reload):
    loaded = reload(OfDict(), dict_env)
    ones = np.ones(2, "float32")
    observation = {"near": ones, "deep": {"far": 2 * ones}, "unused": ones}
    assert loaded(observation).tolist() == [3.0, 3.0]


PLANES = spaces.Box(0, 1, (10, 10, 4), bool)


def test_an_image_of_booleans_is_encoded_as_in_training(reload):
    factory = NetworkFactory(PLANES, (8,))
    policy = CategoricalPolicy(factory.network(3), factory.in_keys)
    seen = torch.rand(20, 10, 10, 4) < 0.3
    with set_interaction_type(InteractionType.DETERMINISTIC):
        expected = policy.act(seen)["action"]
    assert reload(policy, lambda: Toy(PLANES))(seen.numpy()).tolist() == expected.tolist()


def shifted_env() -> gym.Env:
    return Toy(spaces.Discrete(5, start=2), spaces.Discrete(3, start=-1))


class Table(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.values = nn.Embedding(5, 3)
        with torch.no_grad():
            self.values.weight.copy_(torch.eye(5, 3))

    def forward(self, observation):
        return self.values(observation)


def test_discrete_spaces_that_do_not_begin_at_zero(reload):
    loaded = reload(QNetwork(Table()), shifted_env)
    assert [int(loaded(np.int64(state))) for state in (2, 3, 4)] == [-1, 0, 1]
    assert isinstance(loaded(2), np.integer)


def test_one_hot_actions_become_indices(reload):
    network = nn.Linear(4, 3)
    loaded = reload(network, Toy, categorical_actions=False)
    observation = torch.randn(6, 4)
    expected = network(observation).argmax(-1)
    assert loaded(observation.numpy()).tolist() == expected.tolist()


@pytest.mark.parametrize("module", [GRUModule, LSTMModule])
def test_a_recurrent_policy_remembers_as_it_does_in_the_collector(module, reload):
    memory = module(input_size=4, hidden_size=8, in_key="observation", out_key="features")
    head = TensorDictModule(mlp(8, 3, ()), ["features"], ["logits"])
    policy = ProbabilisticActor(
        TensorDictSequential(memory, head),
        in_keys=["logits"],
        distribution_class=torch.distributions.Categorical,
    )
    collector = VectorCollector(
        Toy,
        policy,
        num_envs=2,
        frames_per_batch=60,
        exploration_type=InteractionType.DETERMINISTIC,
    )
    batch = collector.collect()
    collector.shutdown()
    loaded = reload(policy)
    assert loaded.recurrent
    first = batch["is_init"].squeeze(-1)
    for time in range(30):
        ended = first[:, time]
        loaded.reset(ended.numpy() if ended.any() else [])
        actions = loaded(batch["observation"][:, time].numpy())
        assert actions.tolist() == batch["action"][:, time].tolist()
    assert first.sum() > 6


def test_shapes_that_do_not_fit_are_named(reload):
    loaded = reload(CategoricalPolicy(mlp(4, 3, (8,))))
    with pytest.raises(ConfigError, match=r"shape \[5\]; the policy needs \[4\], or \[batch, 4\]"):
        loaded(np.zeros(5))
    with pytest.raises(ConfigError, match=r"shape \[\]"):
        loaded(0.0)
    with pytest.raises(ConfigError, match="observation is a dict; the policy needs an array"):
        loaded({"observation": np.zeros(4)})
    with pytest.raises(ConfigError, match="observation is not an array"):
        loaded([[0.0], [0.0, 0.0]])
    with pytest.raises(ConfigError, match="observation is not an array"):
        loaded(torch.zeros(4, requires_grad=True))


def test_actions_that_do_not_fit_are_named(reload):
    class Share(nn.Module):
        def forward(self, observation):
            return observation[:, 0].sigmoid()

    for policy, options, said in (
        (nn.Linear(4, 2), {}, r"float32 \[1, 2\]; .* int64\[\], needs indices \[1\]"),
        (Share(), {}, r"float32 \[1\]; .* needs indices \[1\]"),
        (
            CategoricalPolicy(mlp(4, 3, (8,))),
            {"categorical_actions": False},
            r"int64 \[1\]; .* needs \[1, 3\]",
        ),
    ):
        with pytest.raises(CheckpointError, match=said):
            reload(policy, **options)


def test_what_cannot_be_saved_is_refused_with_the_reason(save):
    with pytest.raises(ConfigError, match=r"only a torch.nn.Module can be saved"):
        save(lambda observation: observation)

    class Dice(nn.Module):
        def forward(self, observation):
            return torch.rand(len(observation), 2)

    with pytest.raises(ConfigError, match="draws random numbers"):
        save(Dice(), box_env)

    with pytest.raises(ConfigError, match='"action" not found'):
        save(TensorDictModule(nn.Linear(4, 2), ["observation"], ["act"]), box_env)

    class Fickle(nn.Module):
        def forward(self, observation):
            return observation[:, :2] * (1 if observation.sum() > 0 else -1)

    class Lists(nn.Module):
        def forward(self, observation):
            return observation[:, :2] * (1 if max(observation[:, 0].tolist()) > 0 else -1)

    for module in (Fickle(), Lists()):
        with pytest.raises(ConfigError, match=r"could not be run to be saved|acts differently"):
            save(module, box_env)


def test_saving_leaves_policy_and_random_numbers_alone(save):
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(4)

        def forward(self, observation):
            return self.norm(observation)[:, :2]

    policy = Counts().train()
    before = copy.deepcopy(policy.state_dict())
    state = torch.get_rng_state()
    save(policy, box_env)
    assert torch.equal(torch.get_rng_state(), state)
    assert policy.training
    assert all(torch.equal(value, before[name]) for name, value in policy.state_dict().items())


def drawn_from(distribution: type) -> nn.Module:
    network = TensorDictModule(mlp(4, 3, (8,)), ["observation"], ["logits"])
    return ProbabilisticActor(network, in_keys=["logits"], distribution_class=distribution)


DRAWING = {name: KINDS[name] for name in ("categorical", "gaussian", "tanh gaussian", "with noise")}
DRAWING |= {
    "choices": (
        lambda: Policy(mlp(4, 5, (8,)), distribution_for(spaces.MultiDiscrete([3, 2]))),
        lambda: Toy(action=spaces.MultiDiscrete([3, 2])),
    ),
    "bits": (
        lambda: Policy(mlp(4, 3, (8,)), distribution_for(spaces.MultiBinary(3))),
        lambda: Toy(action=spaces.MultiBinary(3)),
    ),
    "epsilon greedy": (
        lambda: EpsilonGreedy(QNetwork(mlp(4, 3, (8,))), eps_init=0.5),
        Toy,
    ),
    "noise of the state": KINDS["noise of the state"],
    "torchrl": KINDS["torchrl"],
    "beta": (lambda: Policy(mlp(4, 4, (8,)), distribution_for(BOX, "beta")), box_env),
    "one of torch's": (lambda: drawn_from(torch.distributions.Categorical), Toy),
}


@pytest.mark.parametrize(
    "kind",
    slow_except(
        DRAWING, *(kind for kind in DRAWING if kind not in {"bits", "torchrl", "with noise"})
    ),
)
def test_a_loaded_policy_draws_from_the_distribution_of_the_one_in_training(kind, reload):
    make, env = DRAWING[kind]
    policy = make()
    loaded = reload(policy, env, deterministic=False, seed=1)
    row = torch.randn(1, 4)
    drawn = np.asarray(loaded(row.expand(4000, 4).numpy()), dtype=float).reshape(4000, -1)
    with set_interaction_type(InteractionType.RANDOM), torch.no_grad():
        many = TensorDict(observation=row.expand(4000, 4), batch_size=4000)
        theirs = policy(many)["action"].numpy().astype(float).reshape(4000, -1)
    assert drawn.std(0).min() > 0.01
    spread = theirs.std(0).max()
    np.testing.assert_allclose(drawn.mean(0), theirs.mean(0), atol=0.12 * spread)
    np.testing.assert_allclose(drawn.std(0), theirs.std(0), atol=0.12 * spread)
    assert not np.array_equal(drawn[:2000], drawn[2000:])


def test_a_hidden_state_and_a_draw_go_together(reload):
    policy = TensorDictSequential(
        GRUModule(input_size=4, hidden_size=6, in_key="observation", out_key="features"),
        TensorDictModule(nn.Linear(6, 4), ["features"], ["parameters"]),
        TensorDictModule(NormalParamExtractor(), ["parameters"], ["loc", "scale"]),
        ProbabilisticActor(
            TensorDictModule(nn.Identity(), ["loc"], ["loc"]),
            in_keys=["loc", "scale"],
            distribution_class=TanhNormal,
        ),
    )
    loaded = reload(policy, box_env, deterministic=False, seed=0)
    assert loaded.recurrent
    first, second = (loaded(np.ones(4, "float32")) for _ in range(2))
    loaded.reset()
    loaded.seed(0)
    assert np.array_equal(loaded(np.ones(4, "float32")), first)
    assert not np.array_equal(first, second)


class Since(TensorDictModuleBase):
    """Counts the steps since an episode began, by what is made of ``"is_init"``."""

    def __init__(self):
        super().__init__()
        self.in_keys = ["observation", "is_init", "steps"]
        self.out_keys = ["action", ("next", "steps")]

    def forward(self, data):
        begins = data["is_init"]
        assert (~begins).all()
        steps = torch.where(~begins, data["steps"] + 1, torch.ones_like(data["steps"]))
        data["action"] = steps.expand(-1, 2) / 10 + 0 * data["observation"][..., :2]
        return data.set(("next", "steps"), steps)

    def make_tensordict_primer(self):
        return TensorDictPrimer(steps=Unbounded((1,)), default_value=0)


def test_what_goes_on_is_not_taken_for_what_begins(reload):
    loaded = reload(Since(), box_env)
    first, second = (loaded(np.ones(4, "float32")) for _ in range(2))
    np.testing.assert_allclose([first[0], second[0]], [0.1, 0.2], rtol=1e-6)


class Counting(nn.Module):
    """Draws how many."""

    def forward(self, observation):
        mean = observation[..., :2].abs()
        random = interaction_type() is InteractionType.RANDOM
        return torch.poisson(mean) if random else mean


def test_what_cannot_be_drawn_from_a_saved_policy_is_said(reload):
    reload(Counting(), box_env)  # its best action can be
    with pytest.raises(ConfigError, match=r"best action only.*poisson"):
        reload(Counting(), box_env, deterministic=False)


def zero(policy: DeterministicPolicy) -> None:
    nn.init.zeros_(policy.network[0].weight)
    nn.init.ones_(policy.network[0].bias)


@pytest.mark.parametrize(
    ("policy", "change", "deterministic", "expected"),
    [
        (DeterministicPolicy(mlp(4, 2, ()), 2), zero, True, lambda x: x == np.float32(np.tanh(1))),
        (Scaled(), lambda policy: setattr(policy, "scale", 3.0), True, lambda x: x == 3.0),
        (
            AdditiveGaussian(DeterministicPolicy(mlp(4, 2, (8,)), 2), 0.0),
            lambda policy: setattr(policy, "sigma", 0.5),
            False,
            lambda x: x.std(0) > 0.1,
        ),
    ],
    ids=["weights", "a number", "noise"],
)
def test_a_policy_is_saved_as_it_is_now(policy, change, deterministic, expected, tmp_path):
    recorder = PolicyRecorder(tmp_path, policy, box_env)
    recorder.save(Progress(frames=1))
    change(policy)
    recorder.save(Progress(frames=2))
    before, now = (
        load_policy(tmp_path / f"step_{frames:012d}", deterministic=deterministic, seed=0)(
            np.ones((100, 4), "float32")
        )
        for frames in (1, 2)
    )
    assert expected(now).all()
    assert not expected(before).any()
