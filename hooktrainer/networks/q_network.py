"""Value networks: Q-networks over discrete actions, V(s) and Q(s, a)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from tensordict import NestedKey, TensorDictBase
from torch import Tensor, nn

from ..base.checks import check_count
from ..errors import ConfigError
from .distributions.discrete import forbid
from .head import Actor, Head, is_deterministic
from .q_heads import FractionEmbedding


class QNetwork(Head):
    """Maps an observation to the value of every discrete action, and acts greedily.

    It writes ``"action_value"`` ``[*batch, actions]``, ``"action"`` ``[*batch]`` (an index, int64)
    and ``"chosen_action_value"`` ``[*batch, 1]``, like TorchRL's ``QValueActor`` for categorical
    actions. TorchRL's ``DQNLoss`` accepts it.

    Args:
        network: Maps the inputs, concatenated if it takes one tensor, to ``[*batch, actions]``.
        in_keys: Entries it reads.
        action_mask_key: Entry of booleans ``[*batch, actions]``; forbidden actions get the least
            finite value. It is the last input.
        trunk: As for `Policy`.
        head: Layers from the network's output to the values, such as those of `q_head`, which
            `Inference` does not compute; ``None`` if the network returns the values.
    """

    head: nn.Module | None
    action_space = "categorical"

    def __init__(
        self,
        network: nn.Module,
        in_keys: Sequence[NestedKey] = ("observation",),
        action_mask_key: NestedKey | None = None,
        trunk: nn.Module | None = None,
        head: nn.Module | None = None,
    ) -> None:
        keys = ["action_value", "action", "chosen_action_value"]
        super().__init__(network, in_keys, keys, trunk, action_mask_key)
        self.head = head
        self._infers_all = trunk is None and head is None

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the three entries, with gradient, and return ``tensordict``."""
        action_value = self.read(tensordict)
        chosen, action = action_value.max(-1, keepdim=True)
        tensordict.set("action_value", action_value)
        tensordict.set("action", action.squeeze(-1))
        return tensordict.set("chosen_action_value", chosen)

    def act(self, *inputs: Tensor) -> dict[Any, Tensor]:
        """The greedy action ``[*batch]`` and the next hidden states, as fast as possible."""
        value, states = self.remember(*inputs)
        return {"action": value.argmax(-1), **states}

    def _result(self, out: Tensor, mask: Tensor | None) -> Tensor:
        values = self._values(out)
        return values if mask is None else forbid(values, mask)

    def _values(self, out: Tensor) -> Tensor:
        """The action values ``[*batch, actions]`` of the network's output."""
        return out if self.head is None else self.head(out)


class EpsilonGreedy(Actor):
    """Takes a random action with probability epsilon, else the greedy one.

    Epsilon falls linearly with the frames that `step` counts (a `hooktrainer.Trainer` calls it
    after every batch), or is set by a `hooktrainer.Schedule`. TorchRL's ``set_exploration_type``
    makes it greedy, except with ``RANDOM``.

    Args:
        q_network: Values the actions.
        eps_init: Initial epsilon.
        eps_end: Epsilon after ``annealing_num_steps`` frames.
        annealing_num_steps: Frames over which epsilon falls.

    Raises:
        ConfigError: If the epsilons do not satisfy ``0 <= eps_end <= eps_init <= 1``, or
            ``annealing_num_steps`` is not a positive integer.
    """

    not_in_graphs: ClassVar = frozenset({"_epsilon", "frames"})
    _epsilon: float
    _eps: Tensor

    def __init__(
        self,
        q_network: QNetwork,
        eps_init: float = 1.0,
        eps_end: float = 0.1,
        annealing_num_steps: int = 1000,
    ) -> None:
        if not 0 <= eps_end <= eps_init <= 1:
            raise ConfigError(
                f"EpsilonGreedy: eps_end={eps_end} and eps_init={eps_init} must be probabilities, "
                "the end not above the start."
            )
        check_count("annealing_num_steps", annealing_num_steps)
        super().__init__()
        # A compiled rollout reads this tensor; a Python number would be a constant in its graph.
        like = next(q_network.parameters(), torch.empty(0))
        self.register_buffer("_eps", torch.zeros((), device=like.device), persistent=False)
        # The names of TorchRL's module, by which a collector finds what falls with the frames.
        self.eps_init, self.eps_end, self.eps = eps_init, eps_end, eps_init
        self.annealing_num_steps = annealing_num_steps
        self.frames = 0
        self.q_network = q_network
        self.in_keys = q_network.in_keys
        self.out_keys = ["action", *q_network.next_keys]

    @property
    def eps(self) -> float:
        """The current probability of a random action."""
        return self._epsilon

    @eps.setter
    def eps(self, value: float) -> None:
        self.__dict__["_epsilon"] = value
        self._eps.fill_(value)

    def act(self, *inputs: Tensor) -> dict[Any, Tensor]:
        """The action ``[*batch]`` and the next hidden states, as fast as possible."""
        action_value, states = self.q_network.remember(*inputs)
        action = action_value.argmax(-1)
        if not is_deterministic():
            chances = torch.rand(*action.shape, device=action.device)  # faster than rand(Size)
            if self.q_network.action_mask_key is None:
                any_action = torch.randint_like(action, action_value.shape[-1])
            else:  # the largest of uniform numbers is equally likely to be any that is allowed
                scores = torch.rand_like(action_value)
                any_action = forbid(scores, inputs[-1]).argmax(-1)
            eps = self._eps if torch.compiler.is_compiling() else self._epsilon
            action = torch.where(chances < eps, any_action, action)
        return {"action": action, **states}

    def sample(self, *inputs: Tensor) -> dict[Any, Tensor]:
        """The part of `act` needed at every step, for compiled rollouts: all of it."""
        return self.act(*inputs)

    def step(self, frames: int = 1) -> None:
        """Count ``frames`` more frames, and update epsilon."""
        own = self.__dict__  # what nn.Module does to set a number takes as long as all of this
        own["frames"] = seen = self.frames + frames
        left = max(1.0 - seen / self.annealing_num_steps, 0.0)
        self.eps = self.eps_end + (self.eps_init - self.eps_end) * left

    def get_extra_state(self) -> dict[str, float]:
        return {"frames": self.frames, "eps": self.eps}

    def set_extra_state(self, state: dict[str, float]) -> None:
        self.frames, self.eps = int(state["frames"]), state["eps"]


class ValueNetwork(Head):
    """A network that maps one or several tensors to one value: V(s), or Q(s, a).

    Args:
        network: Maps the inputs, concatenated if it takes one tensor, to a last dimension of 1.
        in_keys: Entries it reads.
        out_keys: The entry it writes. Default: ``"state_action_value"`` if it reads ``"action"``,
            else ``"state_value"``.
        trunk: As for `Policy`. It does not read an ``"action"``, which comes last.

    Examples:
        >>> critic = ValueNetwork(mlp(4, 1))
        >>> q = ValueNetwork(mlp(3 + 1, 1), in_keys=["observation", "action"])
    """

    def __init__(
        self,
        network: nn.Module,
        in_keys: Sequence[NestedKey] = ("observation",),
        out_keys: Sequence[NestedKey] | None = None,
        trunk: nn.Module | None = None,
    ) -> None:
        of_action = "action" in list(in_keys)
        keys = list(out_keys or ["state_action_value" if of_action else "state_value"])
        super().__init__(network, in_keys, keys, trunk)
        self.out_keys = keys  # without hidden states, which the policy writes
        self._rest = int(of_action)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the value ``[*batch, 1]``, with gradient, and return ``tensordict``."""
        return tensordict.set(self.out_keys[0], self.evaluate(*self.inputs(tensordict)))


# -- Q-networks of distributions of the return.


class DistributionalQNetwork(QNetwork):
    """Base class: a `QNetwork` whose action values are means of distributions.

    Args:
        network: Maps the inputs to ``[*batch, actions * n]``, or to the features of a ``head``.
        n: Numbers that describe a distribution.
        options: Further arguments of `QNetwork`.
    """

    def __init__(
        self,
        network: nn.Module,
        n: int,
        in_keys: Sequence[NestedKey] = ("observation",),
        **options: Any,
    ) -> None:
        super().__init__(network, in_keys, **options)
        check_count("n", n)
        self.n = n

    def distribution(
        self, *inputs: Tensor, features: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The distributions for the entries ``in_keys``, with gradient.

        Args:
            *inputs: As for `evaluate`.
            features: As for `evaluate`.

        Returns:
            Their numbers, ``[*batch, actions, n]``, and the atoms or fractions of these.
        """
        out, _, _ = self._called(self.network, inputs, features)
        return self._distribution(out)

    @abstractmethod
    def _distribution(self, out: Tensor) -> tuple[Tensor, Tensor]:
        """Return `distribution` for the network's output."""

    def _by_action(self, out: Tensor) -> Tensor:
        out = out if self.head is None else self.head(out)
        return out.unflatten(-1, (-1, self.n))


def atoms_between(v_min: float, v_max: float, n: int, owner: str, name: str = "n") -> Tensor:
    """The returns ``[n]`` of a categorical distribution, at equal distances.

    Raises:
        ConfigError: If there are less than two, or ``v_min`` is not below ``v_max``; it names the
            ``owner``, and what the owner calls the number.
    """
    if n < 2 or not v_min < v_max:
        raise ConfigError(f"{owner}: {v_min=} must be below {v_max=}, and {name}={n} at least 2.")
    return torch.linspace(v_min, v_max, n)


class CategoricalQNetwork(DistributionalQNetwork):
    """Learns probabilities of fixed returns (C51: Bellemare et al., 2017, arXiv:1707.06887).

    `distribution` returns log-probabilities, ``[*batch, actions, n]``, and the atoms ``[n]``.

    Args:
        network, in_keys, options: As for `DistributionalQNetwork`.
        n: Number of atoms, at equal distances from ``v_min`` to ``v_max``.
        v_min: The least return.
        v_max: The greatest return.

    Raises:
        ConfigError: If there are less than two atoms, or ``v_min`` is not below ``v_max``.
    """

    atoms: Tensor

    def __init__(
        self,
        network: nn.Module,
        n: int = 51,
        in_keys: Sequence[NestedKey] = ("observation",),
        *,
        v_min: float = -10.0,
        v_max: float = 10.0,
        **options: Any,
    ) -> None:
        super().__init__(network, n, in_keys, **options)
        self.register_buffer("atoms", atoms_between(v_min, v_max, n, "CategoricalQNetwork"))

    def _distribution(self, out: Tensor) -> tuple[Tensor, Tensor]:
        return self._by_action(out).log_softmax(-1), self.atoms

    def _values(self, out: Tensor) -> Tensor:
        return (self._by_action(out).softmax(-1) * self.atoms).sum(-1)


class QuantileQNetwork(DistributionalQNetwork):
    """Learns quantiles of the return.

    Without an ``embedding`` they are those of fixed fractions (QR-DQN: Dabney et al., 2018,
    arXiv:1710.10044), with one of any fraction (IQN: Dabney et al., 2018, arXiv:1806.06923).
    `distribution` returns quantiles, ``[*batch, actions, n]``, and their fractions: ``[n]``, or
    uniformly drawn ones ``[*batch, n]``. Action values are means over the fractions
    ``(k + 0.5) / n``.

    Args:
        network, in_keys, options: As for `DistributionalQNetwork`.
        n: Number of quantiles.
        embedding: Joins the network's features and fractions, for a ``head`` of one number an
            action.

    Raises:
        ConfigError: If ``embedding`` is given without ``head``.
    """

    fractions: Tensor

    def __init__(
        self,
        network: nn.Module,
        n: int = 51,
        in_keys: Sequence[NestedKey] = ("observation",),
        *,
        embedding: FractionEmbedding | None = None,
        **options: Any,
    ) -> None:
        super().__init__(network, n, in_keys, **options)
        if embedding is not None and self.head is None:
            raise ConfigError("QuantileQNetwork: an embedding needs a head: pass head=.")
        self.embedding = embedding
        self.register_buffer("fractions", (torch.arange(n) + 0.5) / n)

    def _distribution(self, out: Tensor) -> tuple[Tensor, Tensor]:
        if self.embedding is None:
            return self._by_action(out), self.fractions
        fractions = torch.rand(*out.shape[:-1], self.n, device=out.device)
        return self._at(out, fractions), fractions

    def _values(self, out: Tensor) -> Tensor:
        if self.embedding is None:
            return self._by_action(out).mean(-1)
        return self._at(out, self.fractions.expand(*out.shape[:-1], -1)).mean(-1)

    def _at(self, out: Tensor, fractions: Tensor) -> Tensor:
        """Return the quantiles ``[*batch, actions, n]`` of fractions ``[*batch, n]``."""
        assert self.embedding is not None
        assert self.head is not None
        return self.head(self.embedding(out, fractions)).transpose(-1, -2)
