"""The fields of a run with several agents, in addition to those of every algorithm."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar

import torch
from gymnasium import spaces
from tensordict import NestedKey, unravel_key
from torch import nn

from ..base.space_parts import MASK
from ..collect import AgentGroup
from ..collect.make_envs import agents_of
from ..errors import ConfigError
from ..hooks import (
    Evaluate,
    RewardScaler,
    SelfPlay,
    TargetNetUpdaterHook,
    ValueEstimatorHook,
    against_random,
)
from ..loop.cadence import Every
from ..networks import (
    AgentMLP,
    AgentsMemory,
    AgentsPolicy,
    CentralNetwork,
    CentralQNetwork,
    EncodedNetwork,
    JointEncoder,
    MemoryTrunk,
    NetworkFactory,
    Policy,
    QNetwork,
    RunningNorm,
    SelfPlayPolicy,
    TanhGaussianPolicy,
    ValueNetwork,
    WithPresence,
    distribution_for,
    mlp,
    orthogonal_init,
)
from ..networks.network_factory import ACTIVATIONS
from ..objectives import GAE, LossByGroup, keys_of
from ..objectives.sequences import ReplayLoss
from ..policies.trust import code_of_agents
from ..replay import ReplayBuffer
from ..run.config import Between, Count, Fraction, Needs, Number, Rate
from ..trainer import Trainer
from .algorithm import WithMemory
from .check_spaces import check_actions, check_observations
from .config import JSON
from .off_policy import FromSequences
from .on_policy import PolicyGradient, mini_batches, scales_rewards
from .task import RunTask

Keys = list[NestedKey]
_TAKERS = {
    spaces.Discrete: "mappo, ippo, vdn and qmix",
    spaces.Box: "mappo, ippo, maddpg and masac",
}


class AgentsTask(RunTask):
    """Values that follow from the fields, and the parts of every algorithm for several agents.

    Attributes:
        groups: The agents, by group.
    """

    _fields: SeveralAgents

    def _inspect(self) -> None:
        fields, name = self._fields, self.name
        if fields.wrappers:
            raise ConfigError(
                f"{name}: wrappers={fields.wrappers} are for one agent: wrap {self.env_name} in a "
                "function that makes it, and pass that as env."
            )
        groups = fields.groups or None
        envs = agents_of(self._made["env"], fields.env_kwargs, groups)
        envs.close()
        space: Any = envs.observation_space
        self.groups: tuple[AgentGroup, ...] = envs.groups
        self.state_space = space.spaces.get("state")
        self._can_leave = {one.name for one in self.groups if "mask" in space[one.name].spaces}
        for group in self.groups:
            where = f"{envs.name} ({group.name})"
            check_observations(name, where, group.observation_space, fields.observations)
            wanted = {"discrete": spaces.Discrete, "continuous": spaces.Box}.get(fields.actions)
            if wanted is not None and not isinstance(group.action_space, wanted):
                takers = _TAKERS.get(type(group.action_space), "mappo and ippo")
                kwargs = json.dumps({"continuous_actions": fields.actions == "continuous"})
                raise ConfigError(
                    f"{name} is for {fields.actions} actions, but those of {where} are "
                    f"{group.action_space}: {takers} take them, and VMAS and mpe have "
                    f"{fields.actions} ones with --env-kwargs '{kwargs}'."
                )
            check_actions(name, where, group.action_space, fields.actions)
        if groups is not None:
            self._made["groups"] = self._played["groups"] = groups
        self._agents = {group.name: group.agents for group in self.groups}
        normalize = fields.normalize_observations
        self._factories = {
            group.name: NetworkFactory(
                group.observation_space,
                (),
                fields.activation,
                encoder=fields.network,
                normalize=normalize,
            )
            for group in self.groups
        }

    def norms(self) -> dict[NestedKey, RunningNorm]:
        """The layers that normalize observations, by key of the observation."""
        return {
            unravel_key((name, key)): norm
            for name, factory in self._factories.items()
            for key, norm in factory.norms.items()
        }

    def mask(self, group: AgentGroup) -> NestedKey | None:
        """Which agents of a group act; ``None`` where all do in every step."""
        return (group.name, "mask") if group.name in self._can_leave else None

    def policy(
        self, group: AgentGroup, continuous: Any = "gaussian", log_std: float = 0.0
    ) -> Policy:
        """The policy of a group, over what its agents observe each."""
        distribution = distribution_for(group.action_space, continuous, log_std)
        network, trunk = self._local(group, distribution.parameter_features)
        if isinstance(trunk, MemoryTrunk):
            orthogonal_init(trunk.encoder, output_gain=math.sqrt(2.0))
        return Policy(
            orthogonal_init(network, output_gain=0.01),
            distribution,
            self._keys(group),
            action_mask_key=(group.name, MASK) if group.has_mask else None,
            trunk=trunk,
        ).to(self.device)

    def value(self, group: AgentGroup, central: bool) -> ValueNetwork:
        """The values of the agents of a group, by what each of them observes, or all together."""
        keys = self._keys(group)
        network, trunk = self._local(group, 1)
        if central:
            encoder, features, keys = self.joint_encoder(memories=True)
            layers, trunk = self._layers(features, 1, group), None
            network = CentralNetwork(encoder, layers, len(group.agents))
        written: Keys = [(group.name, "state_value")]
        value = ValueNetwork(orthogonal_init(network), keys, written, trunk)
        return value.to(self.device)

    def action_values(self, group: AgentGroup) -> QNetwork:
        """The values of the actions of the agents of a group."""
        space: Any = group.action_space
        mask = (group.name, MASK) if group.has_mask else None
        network, trunk = self._local(group, int(space.n))
        return QNetwork(network, self._keys(group), mask, trunk).to(self.device)

    def bounded_policy(self, group: AgentGroup, kind: Any) -> Any:
        """A `DeterministicPolicy` or `TanhGaussianPolicy` of a group, within its bounds."""
        space: Any = group.action_space
        outputs = math.prod(space.shape) * (2 if kind is TanhGaussianPolicy else 1)
        low, high = torch.from_numpy(space.low), torch.from_numpy(space.high)
        network, trunk = self._local(group, outputs)
        made = kind(network, tuple(space.shape), low, high, self._keys(group), trunk=trunk)
        return made.to(self.device)

    def central_q(self, group: AgentGroup) -> CentralQNetwork:
        """The values of a group's agents, of what all agents observe, or remember, and do."""
        encoder, features, keys = self.joint_encoder(memories=True, evaluated=True)
        for one in self.groups:
            features += len(one.agents) * math.prod(one.action_space.shape or ())
        number = len(group.agents)
        outputs = number if self._fields.share_parameters else 1
        network = self._layers(features, outputs, group)
        found = [each.shared for each in self._networks.values()]
        trunks = [trunk for trunk in found if isinstance(trunk, MemoryTrunk)]
        return CentralQNetwork(encoder, network, number, keys, trunks).to(self.device)

    def joint_encoder(
        self, memories: bool = False, evaluated: bool = False
    ) -> tuple[JointEncoder, int, Keys]:
        """The encoder of the state or, without one, of all agents' observations.

        Args:
            memories: Whether it reads what all agents remember, if they do, and the state.
            evaluated: Whether it takes the features of these memories, after the entries.

        Returns:
            It, the number of features, and the entries it reads.
        """
        parts, total, keys = [], 0, Keys()
        if self.state_space is not None:
            encoder, total = NetworkFactory(self.state_space, ()).trunk()
            parts, keys = [(encoder, 1, False)], Keys(["state"])
        memories &= self._fields.memory is not None
        for group in self.groups if memories or not parts else ():
            factory = (self._networks if memories else self._factories)[group.name]
            encoder, features = factory.trunk()
            own = self._keys(group, memories)
            total += features * len(group.agents)
            if memories and evaluated:
                parts.append((encoder, 1, True))
            else:
                parts.append((factory.shared or encoder, len(own), True))
                keys += own
        return JointEncoder(parts), total, keys

    def against_random(self, policy: AgentsPolicy, group: AgentGroup) -> Evaluate:
        """The evaluation against random opponents, when and as often as that of all together."""
        fields = self._fields
        return against_random(
            policy,
            group,
            every=Every(frames=fields.eval_interval),
            episodes=int(fields.eval_episodes),
            deterministic=fields.eval_deterministic,
            **self._played,
        )

    @cached_property
    def _networks(self) -> Mapping[str, NetworkFactory]:
        """The factories of policies and their values, after a memory if there is one."""
        if self._fields.memory is None:
            return self._factories
        return {group.name: self._remembering(group) for group in self.groups}

    def _remembering(self, group: AgentGroup) -> NetworkFactory:
        factory, fields, number = self._factories[group.name], self._fields, len(group.agents)
        keys, mask = self._keys(group, memories=False), self.mask(group)
        encoder = factory.encoder()
        each = 1 if fields.share_parameters else number
        memories = [fields.memory_of(encoder.out_features) for _ in range(each)]
        memory = AgentsMemory(memories, number, mask is not None)
        if mask is not None:
            encoder, keys = WithPresence(encoder), [*keys, mask]
        trunk = MemoryTrunk(encoder, memory, keys, (group.name, "memory"))
        return factory.after(trunk, trunk.out_features, trunk.in_keys)

    def _keys(self, group: AgentGroup, memories: bool = True) -> Keys:
        """The entries that a group's networks read, or only what its agents observe."""
        if memories and self._fields.memory is not None:
            return self._networks[group.name].in_keys
        return [unravel_key((group.name, key)) for key in self._factories[group.name].in_keys]

    def _local(self, group: AgentGroup, outputs: int) -> tuple[nn.Module, nn.Module | None]:
        """A network of what each agent observes, or remembers, and the memory before it."""
        factory = self._networks[group.name]
        encoder, features = factory.trunk()
        return EncodedNetwork(encoder, self._layers(features, outputs, group)), factory.shared

    def _layers(self, features: int, outputs: int, group: AgentGroup) -> nn.Module:
        cells, activation = self._fields.num_cells, ACTIVATIONS[self._fields.activation]
        if self._fields.share_parameters:
            return mlp(features, outputs, cells, activation)
        return AgentMLP(len(group.agents), features, outputs, cells, activation)


@dataclass(frozen=True, kw_only=True)
class SeveralAgents(WithMemory):
    """Fields of the algorithms for several agents; ``env`` is one of several agents.

    ``"vmas/balance"``, a scenario class of VMAS, ``"pettingzoo/mpe/simple_spread_v3"``, or a
    function that makes a parallel environment of PettingZoo.
    """

    groups: Annotated[Mapping[str, Any], JSON] = field(default_factory=dict)
    """the agents by group; by default those with equal spaces are a group"""
    share_parameters: bool = True
    """whether the agents of a group have one network, or each a network of its own"""

    task_type: ClassVar[type[RunTask]] = AgentsTask

    @classmethod
    def code_in(cls, values: Mapping[str, Any]) -> str | None:
        """Describe what an environment and its arguments would import, run or read."""
        env, kwargs = values.get("env"), values.get("env_kwargs", {})
        return super().code_in(values) if env is None else code_of_agents(str(env), kwargs)

    def wrapped(self) -> None:
        """No environment of several agents has usual wrappers."""


# -- What QMIX, VDN, MADDPG and MASAC share: they learn from a replay buffer.


@dataclass(frozen=True, kw_only=True)
class AgentsOffPolicy(FromSequences, SeveralAgents):
    """Fields of QMIX, VDN, MADDPG and MASAC."""

    num_envs: Count = 32
    init_random_frames: Number = 2_000
    buffer_size: Count = 200_000
    """capacity of the replay buffer, in steps of an environment"""
    batch_size: Count = 256
    """steps of an environment per optimizer step, each with all of its agents"""
    eval_interval: Count = 20_000
    eval_episodes: Number = 32

    def _trainer(
        self, task: AgentsTask, loss_module: ReplayLoss, policy: AgentsPolicy, updater: Any
    ) -> Trainer:
        """The trainer: ``policy`` collects, ``updater`` moves the target networks."""
        loss_module.to(task.device)
        masks = [mask for group in task.groups if (mask := task.mask(group)) is not None]
        masks += [("next", *mask) for mask in masks]
        keys, (rows, sample) = list(dict.fromkeys([*loss_module.in_keys, *masks])), self._rows()
        buffer = ReplayBuffer(rows, batch_size=sample, keys=keys, device=task.device)
        hooks = [self._filled(loss_module, buffer), TargetNetUpdaterHook(updater)]
        return self._wired(task, policy, loss_module, hooks)


# -- What MAPPO and IPPO share: they learn from what the present policies of all agents collect.


@dataclass(frozen=True, kw_only=True)
class AgentsOnPolicy(PolicyGradient, SeveralAgents):
    """Fields of MAPPO and IPPO."""

    num_envs: Count = 64
    steps_per_batch: Count = 100
    num_epochs: Count = 5
    """epochs over each batch"""
    mini_batch_size: Count = 800
    """steps of an environment in each mini-batch, each with all of its agents"""
    sequence_length: Annotated[Count | None, Needs("memory")] = None
    """with a memory, steps of the sequences that make up a mini-batch; None for steps_per_batch, or
    mini_batch_size if that is less"""
    lr: Annotated[Rate, Between(1e-4, 1e-2, log=True)] = 1e-3
    eval_interval: Count = 20_000
    eval_episodes: Number = 32
    num_cells: tuple[Count, ...] = (128, 128)
    lmbda: Fraction = 0.95
    """lambda of generalized advantage estimation"""
    clip_epsilon: float = 0.2
    """clipping range of the probability ratio around 1"""
    scale_rewards: bool | None = None
    """whether rewards are divided by the deviation of the return; None: if there is a memory"""
    self_play: Number = 0
    """past policies in the pool of opponents, for games of equal players; 0 for no self-play"""
    self_play_interval: Annotated[Count, Needs("self_play")] = 20_000
    """frames after which the policy is added to that pool"""
    self_play_probability: Annotated[Fraction, Needs("self_play")] = 0.5
    """probability of an episode against a past policy, rather than against itself"""

    central_critic: ClassVar[bool]

    def build(self, task: AgentsTask) -> Trainer:
        """Wire the trainer."""
        policies, losses, hooks = {}, {}, dict[str, Any]()
        actions = spaces.Tuple([group.action_space for group in task.groups])
        self._check_distribution(task, actions)
        for group in task.groups:
            name = group.name
            actor = task.policy(group, self.action_distribution, self.log_std)
            critic = task.value(group, self.central_critic)
            loss = self._loss(actor, critic)
            written = keys_of(name, "advantage", "value_target")
            mask = task.mask(group)
            learned = None if mask is None and not self.self_play else (name, "learned")
            loss.set_keys(
                action=(name, "action"),
                sample_log_prob=(name, "action_log_prob"),
                value=(name, "state_value"),
                mask=learned,
                **written,
            )
            gae = GAE(gamma=self.gamma, lmbda=self.lmbda, value_network=critic)
            gae.set_keys(
                value=(name, "state_value"),
                mask=mask,
                learned=learned,
                **keys_of(name, "reward", "done", "terminated"),
                **written,
            )
            if scales_rewards(self):
                hooks[f"reward_scaler_{name}"] = RewardScaler(self.gamma, group=name)
            hooks[f"value_estimator_{name}"] = ValueEstimatorHook(gae)
            policies[name], losses[name] = actor, loss
        collecting = policy = AgentsPolicy(policies)
        if self.self_play:
            collecting, hooks["self_play"] = self._self_play(task, policy)
        loss_module = LossByGroup(losses).to(task.device)
        hooks["mini_batches"] = mini_batches(self, loss_module.in_keys)
        return task.finish(self._wired(task, collecting, loss_module, hooks), policy)

    def _self_play(self, task: AgentsTask, policy: AgentsPolicy) -> tuple[Any, SelfPlay]:
        group, *others = task.groups
        if others or len(group.agents) < 2 or not self.share_parameters:
            made = ", ".join(f"{one.name} ({len(one.agents)})" for one in task.groups)
            raise ConfigError(
                f"{task.name}: self_play={self.self_play} needs one group of two or more equal "
                f"players with share_parameters, and {task.env_name} has the groups {made}: leave "
                "self_play out."
            )
        if self.memory is not None and self.central_critic:
            raise ConfigError(
                f"{task.name}: self_play={self.self_play} and memory={self.memory!r:.80} do not "
                "work together, as its critic reads what all players remember, and past policies "
                "remember otherwise: leave one of them out, or train with ippo."
            )
        size, probability = int(self.self_play), self.self_play_probability
        seats = SelfPlayPolicy(policy, group.name, len(group.agents), size, probability)
        versus = task.against_random(policy, group) if self.eval_episodes else None
        return seats.to(task.device), SelfPlay(seats, Every(frames=self.self_play_interval), versus)
