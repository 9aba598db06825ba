"""`DecisionTransformer`, which models the actions of episodes by their returns, and its policy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, cast

import torch
from tensordict import NestedKey
from torch import Tensor, nn
from torch.nn import functional

from ..base.checks import check_count
from .deterministic import Box
from .distributions.discrete import Categorical
from .head import Actor, is_deterministic
from .layers import RunningNorm
from .memory import primer
from .transformer import Block, check_sizes


class DecisionTransformer(nn.Module):
    """A causal transformer over the steps of an episode (Chen et al., 2021, arXiv:2106.01345).

    A step is three tokens: the return-to-go, which is the sum of its reward and all later ones; the
    observation; the action. To the embedding of each is added one of the number of the step. The
    output is that of the observation's token, which sees its own step without the action, and the
    steps before. The blocks are those of `CausalTransformer`.

    Args:
        encoder: Maps observations ``[*batch, ...]`` to their embeddings ``[*batch, width]``.
        action_features: Size of an encoded action.
        outputs: Size of the output.
        max_steps: Number of steps with an embedding; later ones have that of the last.
        width: Number of features of a token; a multiple of ``heads``.
        depth: Number of blocks.
        heads: Number of attention heads.

    Attributes:
        return_norm: Normalizes returns-to-go; `RunningNorm.update` sets its statistics.

    Raises:
        ConfigError: If a size is not positive, or ``width`` is no multiple of ``heads``.
    """

    def __init__(
        self,
        encoder: nn.Module,
        action_features: int,
        outputs: int,
        *,
        max_steps: int,
        width: int = 64,
        depth: int = 3,
        heads: int = 1,
    ) -> None:
        super().__init__()
        check_sizes(width, heads, depth=depth)
        self.return_norm = RunningNorm(1)
        self.embed_return = nn.Linear(1, width)
        self.embed_observation = encoder
        self.embed_action = nn.Linear(action_features, width)
        self.embed_step = nn.Embedding(max_steps, width)
        nn.init.normal_(self.embed_step.weight, std=0.02)
        self.embedding_norm = nn.LayerNorm(width)
        self.blocks = nn.ModuleList(Block(width, heads, exact=False) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, outputs)

    def forward(
        self, return_to_go: Tensor, observation: Tensor, action: Tensor, step: Tensor, mask: Tensor
    ) -> Tensor:
        """The output ``[batch, time, outputs]``.

        Args:
            return_to_go: ``[batch, time, 1]``.
            observation: ``[batch, time, ...]``.
            action: Encoded actions, ``[batch, time, action_features]``.
            step: The number of each step in its episode, ``[batch, time]``, int64.
            mask: Bool ``[batch, time]``, false for padding, which no step attends to.
        """
        batch, time = mask.shape
        tokens = [
            self.embed_return(self.return_norm(return_to_go)),
            self.embed_observation(observation),
            self.embed_action(action),
        ]
        steps = self.embed_step(step.clamp(0, self.embed_step.num_embeddings - 1))
        x = (torch.stack(tokens, 2) + steps.unsqueeze(2)).flatten(1, 2)
        x = self.embedding_norm(x).flatten(0, 1)
        place = torch.arange(3 * time, device=x.device)
        earlier, own = place.unsqueeze(-1) > place, place.unsqueeze(-1) == place
        # Padding attends to itself alone: a softmax over nothing would be NaN.
        visible = earlier & mask.unsqueeze(-1).expand(-1, -1, 3).flatten(1).unsqueeze(1) | own
        for block in cast(Iterable[Block], self.blocks):
            qkv = block.queries_keys_values(x)
            q, k, v = qkv.view(batch, 3 * time, *qkv.shape[1:]).permute(2, 0, 3, 1, 4)
            attended = functional.scaled_dot_product_attention(q, k, v, visible.unsqueeze(1))
            x = block.after(x, attended.transpose(1, 2).flatten(2).flatten(0, 1))
        return self.head(self.norm(x).unflatten(0, (batch, time, 3))[:, :, 1])


_RETURN: Final = ("memory", "return_to_go")
_WINDOW: Final = ("memory", "window")
_STEP: Final = ("memory", "step")
_HIDDEN: Final = (_RETURN, _WINDOW, _STEP)


class DecisionTransformerPolicy(Actor):
    """Acts by a `DecisionTransformer`, conditioned on a target return.

    Its hidden states, which collectors carry and saved policies hold, are the return-to-go, a
    window of the last steps, and the number of the step. The return-to-go is ``target_return`` at
    first, and less by each reward, which the policy reads as ``"last_reward"``: it acts in
    environments with the wrapper `hooktrainer.collect.LastReward`.

    Args:
        network: Its outputs are logits, or an action before the tanh.
        actions: One of n discrete actions, or the box of continuous ones.
        observation_features: Size of an observation, a vector.
        context_length: Steps in the window.
        target_return: The return to reach.
    """

    def __init__(
        self,
        network: DecisionTransformer,
        actions: Categorical | Box,
        observation_features: int,
        *,
        context_length: int = 20,
        target_return: float = 0.0,
    ) -> None:
        super().__init__()
        check_count("context_length", context_length)
        self.network = network
        self.actions = actions
        self.context_length = context_length
        self.target_return = target_return
        self._sizes = [1, observation_features, network.embed_action.in_features]
        self.in_keys: list[NestedKey] = ["observation", "last_reward", *_HIDDEN]
        self.out_keys: list[NestedKey] = ["action", *(("next", *key) for key in _HIDDEN)]

    def encoded(self, action: Tensor) -> Tensor:
        """Actions as the network reads them, ``[*batch, features]``.

        Discrete ones are one-hot vectors. Of continuous ones the box is [-1, 1].
        """
        if isinstance(self.actions, Box):
            return self.actions.unit(action)
        return self.actions.encoded(action)

    def error(self, output: Tensor, action: Tensor) -> Tensor:
        """How far the network's output is from an action, ``[*batch]``, with gradient.

        It is the cross-entropy of a discrete action. Of a continuous one it is the mean squared
        difference, where the box is [-1, 1].
        """
        if isinstance(self.actions, Box):
            return (output.tanh() - self.actions.unit(action)).square().mean(-1)
        return -self.actions.log_prob_and_entropy(output, action.long())[0]

    @torch.no_grad()
    def act(self, *inputs: Tensor) -> dict[Any, Tensor]:
        """The action and the next hidden states, for the entries ``in_keys``."""
        observation, last_reward, return_to_go, window, step = inputs
        return_to_go = return_to_go - last_reward
        seen = torch.cat([return_to_go, observation.float()], -1)
        before = window[:, 1:]
        row = functional.pad(seen, (0, self._sizes[-1])).unsqueeze(1)  # its action is unknown
        parts = torch.split(torch.cat([before, row], 1), self._sizes, -1)
        steps = step + torch.arange(1 - self.context_length, 1, device=step.device)
        output = self.network(*parts, steps, steps >= 0)[:, -1]
        if isinstance(self.actions, Box):
            action = self.actions(output)
        else:
            action = self.actions.sample(output, ("action",), is_deterministic())["action"]
        taken = torch.cat([seen, self.encoded(action)], -1).unsqueeze(1)
        after = (return_to_go, torch.cat([before, taken], 1), step + 1)
        hidden = {("next", *key): value for key, value in zip(_HIDDEN, after, strict=True)}
        return {"action": action, **hidden}

    def make_tensordict_primer(self) -> Any:
        """TorchRL's primer of the initial hidden states."""
        window = torch.zeros(self.context_length, sum(self._sizes))
        return primer(
            {
                _RETURN: (torch.zeros(1), self.target_return),
                _WINDOW: (window, 0),
                _STEP: (torch.zeros(1, dtype=torch.int64), 0),
            }
        )
