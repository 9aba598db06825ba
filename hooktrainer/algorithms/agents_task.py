"""`AgentsTask`: what follows from the fields of an algorithm for several agents."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces
from tensordict import NestedKey
from torch import nn

from ..base.space_parts import MASK
from ..collect.agents import AgentGroup, AgentsCollector, make_world
from ..collect.agents.groups import Grouping
from ..errors import ConfigError
from ..networks import (
    AgentMLP,
    CentralNetwork,
    EncodedNetwork,
    JointEncoder,
    NetworkFactory,
    Policy,
    QNetwork,
    RunningNorm,
    ValueNetwork,
    distribution_for,
    mlp,
    orthogonal_init,
)
from ..networks.network_factory import ACTIVATIONS
from .check_spaces import check_actions, check_observations
from .config import AlgorithmConfig
from .run_task import RunTask

Keys = list[NestedKey]


class AgentsTask(RunTask):
    """What follows from the fields, and the parts that every algorithm for several agents has.

    Args:
        algorithm: The fields.
        keep: Whether the run has a directory, which is made if ``run_dir`` names none.
        groups: The groups of agents; by default those with equal spaces.
        share_parameters: Whether the agents of a group have one network.

    Attributes:
        groups: The agents, by group.

    Raises:
        ConfigError: If the environment cannot be made, or the algorithm is not for its spaces.
    """

    def __init__(
        self,
        algorithm: AlgorithmConfig,
        keep: bool,
        groups: Grouping | None = None,
        share_parameters: bool = True,
    ) -> None:
        super().__init__(algorithm)
        self._share_parameters = share_parameters
        world = make_world(algorithm.env, 1, env_kwargs=algorithm.env_kwargs, groups=groups)
        self.groups: tuple[AgentGroup, ...] = world.groups
        self.state_space = world.state_space
        seen = world.reset()
        self._can_leave = {group.name for group in self.groups if (group.name, "mask") in seen}
        world.close()
        name = self.name
        for group in self.groups:
            where = f"{world.name} ({group.name})"
            check_observations(name, where, group.observation_space, algorithm.observations)
            if algorithm.actions == "discrete" and not isinstance(
                group.action_space, spaces.Discrete
            ):
                raise ConfigError(
                    f"{name} is for discrete actions, but those of {where} are "
                    f"{group.action_space}: mappo and ippo take them, and VMAS has discrete ones "
                    "with --env-kwargs '{\"continuous_actions\": false}'."
                )
            check_actions(name, where, group.action_space, algorithm.actions)
        self._collects = self._plays = AgentsCollector
        if groups is not None:
            self._made["groups"] = self._played["groups"] = groups
        self._agents = {group.name: group.agents for group in self.groups}
        self._begin(keep)
        self._activation = ACTIVATIONS[algorithm.activation]
        self._factories: dict[str, NetworkFactory] = {
            group.name: NetworkFactory(
                group.observation_space,
                (),
                algorithm.activation,
                encoder=algorithm.network,
                normalize=algorithm.normalize_observations,
            )
            for group in self.groups
        }

    def norms(self) -> dict[NestedKey, RunningNorm]:
        """What normalizes observations, by the key of what it normalizes."""
        return {
            (name, key) if isinstance(key, str) else (name, *key): norm
            for name, factory in self._factories.items()
            for key, norm in factory.norms.items()
        }

    def mask(self, group: AgentGroup) -> NestedKey | None:
        """Which agents of a group act; ``None`` where none leaves before the episode ends."""
        return (group.name, "mask") if group.name in self._can_leave else None

    def policy(
        self, group: AgentGroup, continuous: Any = "gaussian", log_std: float = 0.0
    ) -> Policy:
        """The policy of a group, over what its agents observe each."""
        distribution = distribution_for(group.action_space, continuous, log_std)
        network = self._local(group, distribution.parameter_features)
        return Policy(
            orthogonal_init(network, output_gain=0.01),
            distribution,
            self._keys(group),
            action_mask_key=(group.name, MASK) if group.has_mask else None,
        ).to(self.device)

    def value(self, group: AgentGroup, central: bool) -> ValueNetwork:
        """The values of the agents of a group, by what each of them observes, or all together."""
        keys = self._keys(group)
        network = self._local(group, 1)
        if central:
            encoder, features, keys = self.joint_encoder()
            network = CentralNetwork(encoder, self._layers(features, 1, group), len(group.agents))
        value = ValueNetwork(orthogonal_init(network), keys, [(group.name, "state_value")])
        return value.to(self.device)

    def action_values(self, group: AgentGroup) -> QNetwork:
        """The values of the actions of the agents of a group."""
        space: Any = group.action_space
        mask = (group.name, MASK) if group.has_mask else None
        network = self._local(group, int(space.n))
        return QNetwork(network, self._keys(group), action_mask_key=mask).to(self.device)

    def joint_encoder(self) -> tuple[JointEncoder, int, Keys]:
        """What makes features of the state or, without one, of what all agents observe.

        Returns:
            It, the number of features, and the entries it reads.
        """
        if self.state_space is not None:
            factory = NetworkFactory(self.state_space, ())
            encoder, features = factory.trunk()
            return JointEncoder([(encoder, 1, False)]), features, ["state"]
        parts, total, keys = [], 0, Keys()
        for group in self.groups:
            encoder, features = self._factories[group.name].trunk()
            own = self._keys(group)
            parts.append((encoder, len(own), True))
            total += features * len(group.agents)
            keys += own
        return JointEncoder(parts), total, keys

    def _keys(self, group: AgentGroup) -> Keys:
        return [
            (group.name, key) if isinstance(key, str) else (group.name, *key)
            for key in self._factories[group.name].in_keys
        ]

    def _local(self, group: AgentGroup, outputs: int) -> nn.Module:
        encoder, features = self._factories[group.name].trunk()
        return EncodedNetwork(encoder, self._layers(features, outputs, group))

    def _layers(self, features: int, outputs: int, group: AgentGroup) -> nn.Module:
        cells = self._fields.num_cells
        if self._share_parameters:
            return mlp(features, outputs, cells, self._activation)
        return AgentMLP(len(group.agents), features, outputs, cells, self._activation)
