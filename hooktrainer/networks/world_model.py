"""`WorldModel`, a recurrent state-space model, and `WorldModelPolicy`, which acts on its states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import torch
from tensordict import NestedKey
from torch import Tensor, nn
from torch.nn.functional import one_hot

from ..base.checks import check_count
from ..errors import ConfigError
from .distributions.discrete import choose
from .head import Actor, is_deterministic
from .layers import arguments, takes_one
from .memory import IS_INIT, primer
from .policy import Policy

RECURRENT: Final = ("memory", "recurrent")
"""The recurrent state before a step, ``[*batch, recurrent_size]``."""
_UNIFORM = 0.01  # part of the uniform distribution in those of latents
Make = Callable[[int, int], nn.Module]


# -- Numbers of any scale.


def symlog(x: Tensor) -> Tensor:
    """Return ``sign(x) * log(1 + |x|)``."""
    return x.sign() * x.abs().log1p()


def symexp(x: Tensor) -> Tensor:
    """Return ``sign(x) * (exp(|x|) - 1)``, the inverse of `symlog`."""
    return x.sign() * x.abs().expm1()


class TwoHot(nn.Module):
    """Numbers as distributions over fixed bins, whose distances grow exponentially with size.

    A number is represented by the probabilities of the two bins next to it whose mean it is.

    Args:
        num_bins: Number of bins, odd.
        largest: `symlog` of the greatest bin.

    Attributes:
        bins: ``[num_bins]``, increasing; the middle one is 0.
    """

    bins: Tensor

    def __init__(self, num_bins: int = 255, largest: float = 20.0) -> None:
        super().__init__()
        if num_bins < 3 or num_bins % 2 == 0:
            raise ConfigError(f"TwoHot: {num_bins=} must be odd, and at least 3.")
        below = symexp(torch.linspace(-largest, 0.0, num_bins // 2 + 1))
        bins = torch.cat([below, -below[:-1].flip(0)])
        self.register_buffer("bins", bins, persistent=False)

    def mean(self, logits: Tensor) -> Tensor:
        """The means ``[*batch]`` of distributions with logits ``[*batch, num_bins]``."""
        probability, middle = logits.to(self.bins.dtype).softmax(-1), len(self.bins) // 2
        # By pairs, so that great numbers of both signs cancel without a rounding error.
        pairs = probability[..., middle + 1 :] - probability[..., :middle].flip(-1)
        return (pairs * self.bins[middle + 1 :]).sum(-1)

    def cross_entropy(self, logits: Tensor, target: Tensor) -> Tensor:
        """The cross entropies ``[*batch]`` of ``logits`` to numbers ``target``, ``[*batch]``."""
        above = torch.bucketize(target, self.bins[1:-1]) + 1
        low, high = self.bins[above - 1], self.bins[above]
        share = ((target - low) / (high - low)).clamp(0.0, 1.0)
        pair = torch.stack([above - 1, above], -1)
        log_probs = logits.to(self.bins.dtype).log_softmax(-1)
        log_low, log_high = log_probs.gather(-1, pair).unbind(-1)
        return -torch.lerp(log_low, log_high, share)


# -- `WorldModel`.


class Observed(NamedTuple):
    """The states of a sequence that was observed, ``[sequences, time, ...]`` each.

    Attributes:
        recurrent: Recurrent states before each observation.
        latent: Latents of the observations.
        posterior: Their log-probabilities, ``[..., groups, classes]``.
        following: Recurrent states after each action.
    """

    recurrent: Tensor
    latent: Tensor
    posterior: Tensor
    following: Tensor


class WorldModel(nn.Module):
    """The recurrent state-space model of DreamerV3 (Hafner et al., 2023, arXiv:2301.04104).

    The state of a step is a recurrent state, which depends on the past, and a latent, a vector of
    one-hot vectors, drawn given the observation (posterior) or, in imagination, without it (prior).
    A GRU maps the state and the action to the next recurrent state, which is zero where an episode
    begins.

    Rewards and ends are predicted from the recurrent state that follows the action; the paper's
    model also sees the next latent. Their means, on which values depend, are the same, and the
    final observations of episodes are not needed.

    Args:
        encoder: Maps the entries ``observed``, concatenated if it takes one tensor, to features.
        in_features: Their number.
        out_features: Number of features that the decoder predicts.
        action_features: Size of an encoded action.
        make: Makes a network with hidden layers from the sizes of its input and output.
        observed: The entries of the observation.
        recurrent_size: Size of the recurrent state.
        groups: One-hot vectors of a latent.
        classes: Size of each.
        two_hot: The distribution of rewards.

    Attributes:
        features: Size of a state.
    """

    def __init__(
        self,
        encoder: nn.Module,
        in_features: int,
        out_features: int,
        action_features: int,
        make: Make,
        *,
        observed: Sequence[NestedKey] = ("observation",),
        recurrent_size: int = 128,
        groups: int = 8,
        classes: int = 8,
        two_hot: TwoHot | None = None,
    ) -> None:
        super().__init__()
        check_count("recurrent_size", recurrent_size)
        check_count("groups", groups)
        check_count("classes", classes, least=2)
        self.observed = list(observed)
        self.recurrent_size, self.groups, self.classes = recurrent_size, groups, classes
        latent = groups * classes
        self.features = recurrent_size + latent
        self.two_hot = two_hot or TwoHot()
        self.encoder = encoder
        self._joins = takes_one(encoder)
        self.embedding = make(in_features, recurrent_size)
        self.cell_input = nn.Sequential(
            nn.Linear(latent + action_features, recurrent_size),
            nn.LayerNorm(recurrent_size),
            nn.SiLU(),
        )
        self.cell = nn.GRUCell(recurrent_size, recurrent_size)
        self.prior_network = make(recurrent_size, latent)
        self.posterior_network = make(2 * recurrent_size, latent)
        self.decoder = make(self.features, out_features)
        self.reward_network = zero_output(make(recurrent_size, len(self.two_hot.bins)))
        self.continue_network = make(recurrent_size, 1)

    def embed(self, *observation: Tensor) -> Tensor:
        """The features ``[*batch, recurrent_size]`` of the entries ``observed``."""
        encoded = self.encoder(*arguments(observation, self._joins))
        return self.embedding(symlog(encoded))

    def prior(self, recurrent: Tensor) -> Tensor:
        """Log-probabilities of latents without the observation, ``[*batch, groups, classes]``."""
        return self._log_probs(self.prior_network(recurrent))

    def posterior(self, recurrent: Tensor, embedded: Tensor) -> Tensor:
        """The same, given the observation's features."""
        return self._log_probs(self.posterior_network(torch.cat([recurrent, embedded], -1)))

    def draw(self, log_probs: Tensor, deterministic: bool = False) -> Tensor:
        """Draw a latent ``[*batch, groups * classes]``, or take the most likely one.

        Its gradient is that of the probabilities (straight through; Bengio et al., 2013,
        arXiv:1308.3432).
        """
        drawn = one_hot(choose(log_probs.detach(), deterministic), self.classes)
        latent = drawn.to(log_probs.dtype)
        if log_probs.requires_grad:
            probability = log_probs.exp()
            latent = latent + (probability - probability.detach())
        return latent.flatten(-2)

    def advance(self, recurrent: Tensor, latent: Tensor, action: Tensor) -> Tensor:
        """The recurrent states ``[batch, recurrent_size]`` after encoded actions."""
        action = action.reshape(len(action), -1)
        return self.cell(self.cell_input(torch.cat([latent, action], -1)), recurrent)

    def observe(
        self, embedded: Tensor, action: Tensor, is_init: Tensor, recurrent: Tensor
    ) -> Observed:
        """The states of sequences.

        Args:
            embedded: Features of the observations, ``[sequences, time, recurrent_size]``.
            action: Encoded actions, ``[sequences, time, ...]``.
            is_init: Where episodes begin, bool ``[sequences, time, 1]``.
            recurrent: Recurrent states before the first step, ``[sequences, recurrent_size]``.
        """
        states = []
        sequence = zip(embedded.unbind(1), action.unbind(1), is_init.unbind(1), strict=True)
        for seen, taken, begins in sequence:
            before = torch.where(begins, 0.0, recurrent)
            posterior = self.posterior(before, seen)
            latent = self.draw(posterior)
            recurrent = self.advance(before, latent, taken)
            states.append(Observed(before, latent, posterior, recurrent))
        return Observed(*(torch.stack(each, 1) for each in zip(*states, strict=True)))

    def _log_probs(self, out: Tensor) -> Tensor:
        probability = out.reshape(*out.shape[:-1], self.groups, self.classes).softmax(-1)
        return torch.log((1 - _UNIFORM) * probability + _UNIFORM / self.classes)


def zero_output(network: nn.Module) -> Any:
    """Set the last layer of a network to zero, so that it begins with the same output for all."""
    *_, last = (module for module in network.modules() if isinstance(module, nn.Linear))
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return network


class WorldModelPolicy(Actor):
    """Acts on the states of a world model; the recurrent state is its memory.

    It writes ``"action"``. Latents and actions are random, or the most likely ones under TorchRL's
    ``set_exploration_type``.

    Args:
        world: The world model.
        policy: Maps a state to an action.
    """

    def __init__(self, world: WorldModel, policy: Policy) -> None:
        super().__init__()
        self.world = world
        self.policy = policy
        self.in_keys: list[NestedKey] = [*world.observed, IS_INIT, RECURRENT]
        self.out_keys: list[NestedKey] = ["action", ("next", *RECURRENT)]

    @torch.no_grad()
    def act(self, *inputs: Tensor) -> dict[Any, Tensor]:
        """The action and the next recurrent state for the entries ``in_keys``, ``[batch, ...]``."""
        *seen, is_init, recurrent = inputs
        recurrent = torch.where(is_init, 0.0, recurrent)
        log_probs = self.world.posterior(recurrent, self.world.embed(*seen))
        latent = self.world.draw(log_probs, is_deterministic())
        action = self.policy.act(torch.cat([recurrent, latent], -1))["action"]
        following = self.world.advance(recurrent, latent, self.policy.encoded(action))
        return {"action": action, ("next", *RECURRENT): following}

    def make_tensordict_primer(self) -> Any:
        """TorchRL's primer of the initial recurrent state."""
        return primer({RECURRENT: (torch.zeros(self.world.recurrent_size), 0)})
