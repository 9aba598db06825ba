"""Collecting while training: order, versions, counts, state."""

from __future__ import annotations

import pickle
import threading
import time

import pytest
import torch
from outcomes import same
from overlap_envs import Slow, Stamp, plain
from tensordict import TensorDict
from tensordict.nn import InteractionType, set_interaction_type
from toy_envs import Counter

from hooktrainer import ConfigError, OverlappedCollector, StateMismatchError
from hooktrainer.collect import messages
from hooktrainer.networks import CategoricalPolicy, mlp
from hooktrainer.store.tree import flatten, unflatten
from hooktrainer.testing import tiny_trainer


def overlapped(policy, depth=1, mode="thread", env=Counter, **options):
    return OverlappedCollector(plain(policy, env, **options), depth, mode=mode)


def weight(batch) -> int:
    (value,) = batch["weight"].unique().tolist()
    return int(value)


def version(batch) -> int:
    (value,) = batch["collector", "policy_version"].unique().tolist()
    return value


def train_on(collector, batches: int) -> list[tuple[int, int]]:
    """The weight and the age of each batch, when the policy is trained once on each."""
    seen = []
    for _ in range(batches):
        batch = collector.collect()
        assert weight(batch) == version(batch)
        assert batch["collector", "policy_version"].shape == batch.shape
        seen.append((weight(batch), collector.policy_age))
        collector.policy.train_once()
    return seen


def through_a_file(state):
    return unflatten(*flatten(state))


# -- which weights collect which batch -----------------------------------------------------------


@pytest.mark.parametrize(
    ("depth", "seen"),
    [
        (0, [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0)]),
        (1, [(0, 0), (0, 1), (1, 1), (2, 1), (3, 1)]),
        (2, [(0, 0), (0, 1), (0, 2), (1, 2), (2, 2)]),
    ],
)
@pytest.mark.parametrize("mode", ["thread", "process"])
def test_each_batch_has_the_weights_of_depth_updates_before(mode, depth, seen):
    collector = overlapped(Stamp(), depth, mode)
    assert train_on(collector, 5) == seen
    assert collector.ahead == depth
    assert collector.metrics(None) == {"data/age": depth}
    collector.shutdown()


def test_depth_zero_is_the_plain_collector():
    torch.manual_seed(1)
    one, policy = plain(Stamp()), Stamp()
    batches = [one.collect() for _ in range(3)]
    drawn = torch.rand(1)
    torch.manual_seed(1)
    other = overlapped(policy, 0, "process")
    threads = threading.active_count()
    for batch in batches:
        assert same(batch, other.collect().exclude("collector"))
    assert torch.equal(torch.rand(1), drawn)
    assert threading.active_count() == threads
    assert other.resumes == "exactly"
    state = other.state_dict()
    assert same(state["collector"], one.state_dict())
    one.shutdown()
    other.shutdown()


def test_the_log_probabilities_are_those_of_the_policy_that_acted():
    actor = CategoricalPolicy(mlp(4, 2))
    collector = overlapped(actor, 1, "process", env="CartPole-v1")
    old = CategoricalPolicy(mlp(4, 2))
    collector.collect()
    for _ in range(2):
        old.load_state_dict(actor.state_dict())
        collector.collect()  # asks for the next batch, with the weights as they are here
        with torch.no_grad():
            for parameter in actor.parameters():
                parameter.add_(torch.randn_like(parameter))
        batch = collector.collect()
        observation, action = batch["observation"], batch["action"]
        log_prob, _ = old.log_prob_and_entropy([observation], action)
        torch.testing.assert_close(batch["action_log_prob"], log_prob.detach())
        now, _ = actor.log_prob_and_entropy([observation], action)
        assert not torch.allclose(batch["action_log_prob"], now)
    collector.shutdown()


# -- counts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [0, 1, 5])
def test_no_more_is_collected_than_asked_for(depth):
    collector = overlapped(Stamp(), depth, total_frames=3 * 8)
    assert [batch.numel() for batch in collector] == [8, 8, 8]
    assert (collector.frames, collector.ahead) == (24, 0)
    assert collector.state_dict()["collector"]["frames"] == 24
    collector.shutdown()


@pytest.mark.parametrize("depth", [1, 3])
def test_it_waits_for_a_slow_learner(depth):
    class Watched(Counter):
        steps = 0

        def step(self, action):
            Watched.steps += 1
            return super().step(action)

    options = {"restore_episodes": False, "init_random_frames": 16}
    collector = overlapped(Stamp(), depth, env=Watched, **options)
    assert collector.init_random_frames == 16  # so long the trainer waits
    leads = []
    for _ in range(6):
        collector.collect()
        time.sleep(0.05)
        leads.append(Watched.steps - collector.frames)
    assert max(leads) == depth * 8
    collector.shutdown()


# -- state ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("depth", "after"), [(1, 1), (2, 2), (0, 0)])
def test_a_state_goes_on_bit_for_bit(depth, after):
    one = overlapped(Stamp(), depth, "process")
    train_on(one, 3)
    state = through_a_file(one.state_dict())
    weights = {key: value.clone() for key, value in one.policy.state_dict().items()}
    drawn = torch.get_rng_state()
    expected = []
    for _ in range(4):
        expected.append(one.collect())
        one.policy.train_once()
    again = overlapped(Stamp(), after, "process", seed=77)
    again.policy.load_state_dict(weights)
    again.load_state_dict(state)
    torch.set_rng_state(drawn)
    assert again.frames == 24
    for batch in expected:
        assert same(batch, again.collect())
        again.policy.train_once()
    one.shutdown()
    again.shutdown()


def test_ready_batches_are_restored_with_another_depth():
    one = overlapped(Stamp(), 2)
    train_on(one, 2)
    state = one.state_dict()
    for depth, seen in [(0, [(0, 2), (1, 2), (4, 0)]), (1, [(0, 2), (1, 2), (3, 1)])]:
        other = overlapped(Stamp(), depth)
        with torch.no_grad():
            other.policy.weight.fill_(2.0)
        other.load_state_dict(through_a_file(state))
        assert train_on(other, 3) == seen
        other.shutdown()
    plain_one = plain(Stamp())
    with pytest.raises(StateMismatchError, match="--overlap 0"):
        plain_one.load_state_dict(state)
    one.shutdown()
    plain_one.shutdown()


# -- several learners ----------------------------------------------------------------------------


def test_each_learner_has_its_own_share_and_random_numbers():
    whole = plain(Stamp())
    expected = whole.collect()["observation"]
    shares = []
    for rank in (0, 1):
        collector = overlapped(Stamp(), 1, "process")
        collector.shard(rank, 2)
        assert (collector.num_envs, collector.frames_per_batch) == (1, 4)
        shares.append(collector)
    batches = [share.collect() for share in shares]
    assert torch.equal(torch.cat([batch["observation"] for batch in batches]), expected)
    assert not torch.equal(batches[0]["noise"], batches[1]["noise"])
    with pytest.raises(ConfigError, match="after the first batch"):
        shares[0].shard(0, 2)
    states = [share.state_dict() for share in shares]
    together = overlapped(Stamp(), 1)
    together.load_state_dict(together.reshard(states))
    assert together.frames == 8  # what was ahead is not counted
    local = plain(Stamp())
    local.load_state_dict(local.reshard(states))
    assert local.frames == 8
    for collector in (whole, *shares, together, local):
        collector.shutdown()


# -- on the way ----------------------------------------------------------------------------------


def test_large_batches_arrive_whole_and_each_tensor_is_its_own():
    options = {"frames_per_batch": 2**14}
    collector = overlapped(Stamp(), 1, "process", **options)
    batch, alone = collector.collect(), plain(Stamp(), **options).collect()
    following, version = batch["next"], batch["next", "reward"]._version
    assert (batch.exclude("collector", "noise") == alone.exclude("noise")).all()
    following["observation"].zero_()
    assert torch.equal(following["reward"], alone["next", "reward"])
    assert following["reward"]._version == version  # or autograd would think that it had changed
    collector.shutdown()


def test_tensors_of_every_kind_are_sent():
    whole = torch.arange(6.0).view(2, 3)
    types = [torch.bool, torch.int64, torch.complex64, torch.bfloat16, torch.float8_e5m2]
    tree = {str(dtype): whole.to(dtype) for dtype in types}
    tree |= {"empty": torch.zeros(0, 3), "one": whole[0, 1], "turned": whole.T, "td": TensorDict()}
    assert same(tree, messages.unpack(messages.pack(tree)))
    message = messages.pack(whole)
    for array in message.arrays.values():
        array.flags.writeable = False  # as those in Ray's store
    messages.unpack(message).zero_()
    assert float(whole.sum()) == 15


def test_a_module_whose_parameters_are_views_of_a_large_tensor():
    flat = torch.rand(100_000)
    module = torch.nn.Linear(2, 3)
    module.weight.data, module.bias.data = flat[:6].view(3, 2), flat[6:9]
    module.bias.requires_grad_(False)
    message = messages.dump((module, lambda x: module(x) + 1))
    assert len(message) < 1.1 * flat.nbytes  # once, not for each parameter
    copy, function = messages.load(message)
    assert (copy.weight.requires_grad, copy.bias.requires_grad) == (True, False)
    assert torch.equal(copy(x := torch.rand(4, 2)), module(x))
    copy.weight.data.zero_()
    assert torch.equal(function(x), copy(x) + 1)  # one module, not two
    assert float(flat[:6].abs().sum()) > 0


# -- a thread ------------------------------------------------------------------------------------


class Explores(torch.nn.Module):
    """Its action says whether it explores."""

    def act(self, observation):
        from hooktrainer.networks.head import is_deterministic

        number = len(observation)
        return {"action": torch.full((number,), int(not is_deterministic()))}


def test_a_thread_explores_while_the_learner_does_not():
    collector = overlapped(Explores(), 1, env=lambda: Slow(0.002))
    collector.collect()
    with set_interaction_type(InteractionType.DETERMINISTIC):
        batch = collector.collect()
    assert batch["action"].unique().tolist() == [1]
    collector.shutdown()


# -- what cannot work ----------------------------------------------------------------------------


def test_invalid_arguments_are_refused():
    inner = plain(Stamp())
    for options, message in [
        ({"depth": -1}, "depth=-1: pass an integer of 0 or more"),
        ({"mode": "fork"}, "mode='fork' is neither of .*process"),
    ]:
        with pytest.raises(ConfigError, match=message):
            OverlappedCollector(inner, **options)
    with pytest.raises(ConfigError, match=r"<object .* is not iterable; pass an iterable of T"):
        OverlappedCollector(object())
    function = plain(lambda observation: torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ConfigError, match="function without state_dict"):
        OverlappedCollector(function)
    assert OverlappedCollector(function, 0).collect().shape == (2, 4)
    inner.shutdown()
    function.shutdown()


def test_what_cannot_be_sent_to_a_process_is_refused():
    lock = threading.Lock()
    collector = overlapped(Stamp(), 1, "process", env=lambda: Counter() if lock else None)
    with pytest.raises(ConfigError, match=r"cannot be copied for another process.*mode='thread'"):
        collector.collect()
    collector.shutdown()


def test_a_thread_refuses_stages_which_set_the_learners_random_numbers():
    collector = overlapped(Stamp(), 1)
    collector.use_workers(1, 2)
    with pytest.raises(ConfigError, match=r"VMAS and stages above 1 set .* mode='process'"):
        collector.collect()
    collector.shutdown()


def test_it_can_be_pickled_until_it_begins():
    collector = overlapped(Stamp(), 1)
    copy = pickle.loads(pickle.dumps(collector))
    assert (copy.depth, copy.num_envs) == (1, 2)
    copy.shutdown()
    collector.collect()
    assert "depth=1, mode=thread, resumed with other" in repr(collector)
    collector.shutdown()


def test_a_collector_of_torchrl_collects_ahead_in_a_thread():
    from torchrl.collectors import Collector
    from torchrl.envs import GymEnv

    torch.manual_seed(0)
    policy = CategoricalPolicy(mlp(4, 2))
    env = GymEnv("CartPole-v1", categorical_action_encoding=True)
    options = {"frames_per_batch": 20, "total_frames": 100}
    inner = Collector(env, policy, auto_register_policy_transforms=False, **options)
    collector = OverlappedCollector(inner, 1, mode="thread")
    trainer = tiny_trainer(
        collector=collector,
        total_frames=100,
        loss_module=lambda batch: TensorDict(
            {"loss": sum(weight.square().sum() for weight in policy.parameters())}
        ),
        optimizer=torch.optim.SGD(policy.parameters(), lr=0.1),
    )
    trainer.train()
    assert (trainer.collected_frames, collector.policy_age) == (100, 1)
