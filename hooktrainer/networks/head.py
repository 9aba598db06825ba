"""Base classes of policies and value networks: TensorDict modules of one network on a trunk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from tensordict import NestedKey, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn

from .inference import Inference
from .inputs import arguments
from .memory import States, next_states, through


class Actor(TensorDictModuleBase):
    """A module whose ``act`` returns entries without gradient; `forward` writes them."""

    act: Any

    def inputs(self, tensordict: TensorDictBase) -> list[Tensor]:
        """The entries ``in_keys`` of ``tensordict``."""
        return [tensordict.get(key) for key in self.in_keys]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write ``out_keys``, without gradient, and return ``tensordict``."""
        for key, value in self.act(*self.inputs(tensordict)).items():
            tensordict.set(key, value)
        return tensordict


class Annealed(Actor):
    """An actor with a number that changes linearly with the frames; both are in the state dict."""

    number: ClassVar[str]  # the attribute's name

    def __init__(self, start: float, end: float, annealing_num_steps: int) -> None:
        super().__init__()
        self._ends = start, end
        self.annealing_num_steps = annealing_num_steps
        self.frames = 0
        # The names of TorchRL's modules, by which a collector finds what falls with the frames.
        setattr(self, f"{self.number}_init", start)
        setattr(self, f"{self.number}_end", end)
        setattr(self, self.number, start)

    def step(self, frames: int = 1) -> None:
        """Count ``frames`` more frames, and update the number."""
        own = self.__dict__  # what nn.Module does to set a number takes as long as all of this
        own["frames"] = seen = self.frames + frames
        start, end = self._ends
        own[self.number] = end + (start - end) * max(1.0 - seen / self.annealing_num_steps, 0.0)

    def get_extra_state(self) -> dict[str, float]:
        """Part of the state dict: the frames and the number."""
        return {"frames": self.frames, self.number: getattr(self, self.number)}

    def set_extra_state(self, state: dict[str, float]) -> None:
        """Restore the frames and the number."""
        self.frames = int(state["frames"])
        setattr(self, self.number, state[self.number])


class Head(Actor):
    """A network after an optional trunk, evaluated with gradient or, faster, without.

    The network takes the trunk's features, or the inputs themselves, one tensor each; if its
    ``forward`` takes one tensor, they are concatenated along their last dimension. An action mask
    is the last input; ``rest`` inputs at the end are not read by the trunk. ``parts`` are further
    submodules, after the network.
    """

    def __init__(
        self,
        network: nn.Module,
        in_keys: Sequence[NestedKey],
        out_keys: Sequence[NestedKey],
        trunk: nn.Module | None = None,
        action_mask_key: NestedKey | None = None,
        rest: int = 0,
        **parts: nn.Module,
    ) -> None:
        super().__init__()
        self.network = network
        for name, part in parts.items():
            setattr(self, name, part)
        self.trunk = trunk
        self.action_mask_key = action_mask_key
        self.in_keys = [*in_keys, *([] if action_mask_key is None else [action_mask_key])]
        self.out_keys = [*out_keys, *next_states(trunk)]
        self._rest = rest
        self._infer = Inference(network)

    @property
    def inference(self) -> Inference:
        """Evaluates the network without gradient."""
        return self._infer

    def _outputs(
        self, inputs: Sequence[Tensor], features: Tensor | None = None, steps: bool = False
    ) -> tuple[Tensor, Tensor | None, States]:
        """The network's output with gradient, the mask, and with ``steps`` the hidden states."""
        seen, mask = self._split(inputs)
        seen, states = through(self.trunk, seen, features, self._rest, steps)
        return self.network(*arguments(seen, self._infer.joins)), mask, states

    def _read(self, tensordict: TensorDictBase) -> tuple[Tensor, Tensor | None]:
        """The network's output and the mask for ``tensordict``, which gets the hidden states."""
        out, mask, states = self._outputs(self.inputs(tensordict), steps=True)
        for key, state in states.items():
            tensordict.set(key, state)
        return out, mask

    def _inferred(self, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor | None, States]:
        """The network's output without gradient, the mask, and the next hidden states."""
        seen, mask = self._split(inputs)
        states: States = {}
        if self.trunk is not None:
            with torch.no_grad():
                seen, states = through(self.trunk, seen, None, self._rest, True)
        return self._infer(*seen), mask, states

    def _split(self, inputs: Sequence[Tensor]) -> tuple[Sequence[Tensor], Tensor | None]:
        return (inputs, None) if self.action_mask_key is None else (inputs[:-1], inputs[-1])
