"""`DreamerLoss`: learns a world model, and a policy and values in its imagination."""

from __future__ import annotations

from typing import NamedTuple

import torch
from tensordict import NestedKey
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from ..base.checks import check_count, check_fraction
from ..networks import WorldModel, WorldModelPolicy
from ..networks.memory import IS_INIT
from ..networks.world_model import RECURRENT, Observed, symlog
from .common import Entries, Loss, next_key
from .gae import discounted_suffix_sums
from .targets import target_copy


class Imagined(NamedTuple):
    """Imagined steps, ``[horizon, batch, ...]`` each but the last state.

    Attributes:
        state: States in which the policy acts.
        action: Its actions.
        reward: Expected rewards.
        continues: Probabilities that the episode continues after the action.
        last: The state after the last step, ``[batch, features]``.
    """

    state: Tensor
    action: Tensor
    reward: Tensor
    continues: Tensor
    last: Tensor


class DreamerLoss(Loss):
    """The losses of DreamerV3 (Hafner et al., 2023, arXiv:2301.04104).

    ``loss_model`` trains the world model on sequences as `hooktrainer.SequenceReplay` stores them:
    entries ``[sequences, time, ...]`` and the recurrent state of the first step, ``[sequences, 1,
    recurrent_size]``. From every state of them the policy imagines ``horizon`` steps. On these
    ``loss_actor`` trains the policy by REINFORCE, with lambda-returns minus values as advantages,
    divided by the range of returns; ``loss_value`` trains the values on the returns. No gradient of
    one reaches what another trains.

    It also returns ``kl``, the divergence of posteriors from priors, the policy's ``entropy``, and
    ``target_value``, the mean return.

    Args:
        actor_network: The policy, with its world model.
        value_network: Maps a state to the logits of the world model's ``two_hot``.
        flat: An encoder without training, whose features the decoder predicts on the scale of
            `symlog`.
        gamma: Discount factor.
        lmbda: The lambda of the returns.
        horizon: Number of imagined steps.
        entropy_coeff: Weight of the policy's entropy.
        free_nats: Divergence of a step below which it is not minimized.
        regularizer: Weight of the cross entropy of values to their slow copy.

    Attributes:
        return_range: Running average of the range of returns, from their 5th to 95th percentile.
    """

    return_range: Tensor
    free_nats: Tensor
    entropy_coeff: Tensor
    decay = 0.99  # of the range of returns
    kl_weights = 1.0, 0.1  # for the prior, and for the posterior

    def __init__(
        self,
        actor_network: WorldModelPolicy,
        value_network: nn.Module,
        flat: nn.Module,
        *,
        gamma: float = 0.997,
        lmbda: float = 0.95,
        horizon: int = 15,
        entropy_coeff: float = 3e-4,
        free_nats: float = 1.0,
        regularizer: float = 1.0,
    ) -> None:
        super().__init__(action="action", reward="reward", terminated="terminated")
        check_count("horizon", horizon)
        self.gamma, self.lmbda = check_fraction("gamma", gamma), check_fraction("lmbda", lmbda)
        self.horizon, self.regularizer = horizon, regularizer
        self.actor_network = actor_network
        self.value_network = value_network
        self.target_value_network = target_copy(value_network)
        self.flat = target_copy(flat)
        self._register_coefficients(
            entropy_coeff=entropy_coeff, free_nats=free_nats, return_range=0.0
        )

    @property
    def world(self) -> WorldModel:
        """The world model."""
        return self.actor_network.world

    @property
    def hidden_keys(self) -> list[NestedKey]:
        """Hidden states that it reads; a sequence holds the first of each."""
        return [RECURRENT]

    @property
    def in_keys(self) -> list[NestedKey]:
        keys = self.tensor_keys
        following = [next_key(keys.reward), next_key(keys.terminated)]
        return [*self.world.observed, IS_INIT, RECURRENT, keys.action, *following]

    def losses(self, entries: Entries) -> dict[str, Tensor]:
        seen = [entries[key] for key in self.world.observed]
        action = self.actor_network.policy.encoded(entries[self.tensor_keys.action])
        states = self.world.observe(
            self.world.embed(*seen), action, entries[IS_INIT], entries[RECURRENT][:, 0]
        )
        kl, model = self._model_loss(states, entries)
        with torch.no_grad():
            imagined = self._imagine(states.recurrent.flatten(0, 1), states.latent.flatten(0, 1))
        return {"loss_model": model, "kl": kl.detach(), **self._behavior(imagined)}

    def _model_loss(self, states: Observed, entries: Entries) -> tuple[Tensor, Tensor]:
        """Return the mean divergence, and the loss of the world model."""
        world = self.world
        prior = world.prior(states.recurrent)
        kl = divergence(states.posterior, prior)
        loss = kl_loss(states.posterior, prior, self.free_nats, self.kl_weights)
        with torch.no_grad():
            target = symlog(self.flat(*(entries[key] for key in world.observed)))
        decoded = world.decoder(torch.cat([states.recurrent, states.latent], -1))
        loss = loss + 0.5 * (decoded - target).square().sum(-1)
        reward = entries[next_key(self.tensor_keys.reward)].reshape(loss.shape)
        loss = loss + world.two_hot.cross_entropy(world.reward_network(states.following), reward)
        terminated = entries[next_key(self.tensor_keys.terminated)]
        continues = world.continue_network(states.following)
        loss = loss + binary_cross_entropy_with_logits(
            continues, (~terminated).to(continues.dtype).reshape(continues.shape), reduction="none"
        ).squeeze(-1)
        return kl.mean(), loss.mean()

    def _imagine(self, recurrent: Tensor, latent: Tensor) -> Imagined:
        """Return steps of the policy in the world model, from states ``[batch, ...]``."""
        world, policy = self.world, self.actor_network.policy
        states, actions, following = [], [], []
        for _ in range(self.horizon):
            states.append(torch.cat([recurrent, latent], -1))
            action = policy.sample(states[-1])["action"]
            actions.append(action)
            recurrent = world.advance(recurrent, latent, policy.encoded(action))
            following.append(recurrent)
            latent = world.draw(world.prior(recurrent))
        after = torch.stack(following)
        return Imagined(
            torch.stack(states),
            torch.stack(actions),
            world.two_hot.mean(world.reward_network(after)),
            world.continue_network(after).squeeze(-1).sigmoid(),
            torch.cat([recurrent, latent], -1),
        )

    def _behavior(self, imagined: Imagined) -> dict[str, Tensor]:
        """Return the losses of the policy and of the values."""
        two_hot, discount = self.world.two_hot, self.gamma * imagined.continues
        logits = self.value_network(imagined.state)
        with torch.no_grad():
            value = two_hot.mean(logits)
            last = two_hot.mean(self.value_network(imagined.last))
            following = torch.cat([value[1:], last.unsqueeze(0)])
            returns = lambda_returns(imagined.reward, discount, following, self.lmbda)
            if self.training:
                self.return_range.lerp_(range_of(returns), 1 - self.decay)
            advantage = (returns - value) / self.return_range.clamp_min(1.0)
            slow = two_hot.mean(self.target_value_network(imagined.state))
            # How likely each step is to be reached.
            weight = torch.cat([torch.ones_like(discount[:1]), discount[:-1].cumprod(0)])
        log_prob, entropy = self.actor_network.policy.log_prob_and_entropy(
            [imagined.state], imagined.action
        )
        gain = log_prob * advantage + self.entropy_coeff * entropy
        error = two_hot.cross_entropy(logits, returns)
        error = error + self.regularizer * two_hot.cross_entropy(logits, slow)
        return {
            "loss_actor": -(weight * gain).mean(),
            "loss_value": (weight * error).mean(),
            "entropy": entropy.detach().mean(),
            "target_value": returns.mean(),
        }


def divergence(one: Tensor, other: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergences ``[*batch]`` of latents, from one to the other.

    Both are log-probabilities, ``[*batch, groups, classes]``.
    """
    return (one.exp() * (one - other)).sum((-2, -1))


def kl_loss(
    posterior: Tensor, prior: Tensor, free_nats: Tensor | float, weights: tuple[float, float]
) -> Tensor:
    """Return the balanced divergence of posteriors from priors, ``[*batch]``.

    One weight is that of the divergence that trains the prior, the other of the one that trains the
    posterior; neither is minimized below ``free_nats``.
    """
    for_prior = divergence(posterior.detach(), prior).clamp_min(free_nats)
    for_posterior = divergence(posterior, prior.detach()).clamp_min(free_nats)
    return weights[0] * for_prior + weights[1] * for_posterior


def lambda_returns(reward: Tensor, discount: Tensor, next_value: Tensor, lmbda: float) -> Tensor:
    """Return lambda-returns, ``[time, ...]`` like all arguments.

    ``R_t = r_t + discount_t * ((1 - lmbda) * V_{t+1} + lmbda * R_{t+1})``; after the last step,
    ``R`` is ``V``.
    """
    rest = next_value * (1 - lmbda)
    rest[-1] = next_value[-1]
    return discounted_suffix_sums(reward + discount * rest, discount * lmbda, 0)


def range_of(returns: Tensor) -> Tensor:
    """Return the difference of the 95th and the 5th percentile of returns."""
    flat = returns.flatten()
    return torch.quantile(flat, 0.95) - torch.quantile(flat, 0.05)
