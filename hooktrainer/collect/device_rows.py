"""What NumPy environments write, on the accelerator where a policy computes: it crosses once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from tensordict import NestedKey

from .buffers import StepBuffers, env_first
from .spaces import Array

Final = tuple[int, int, Sequence[Array]]
"""An environment, a step with which its episode ended, and the leaves of the observation then."""


def crosses_once(policy_device: torch.device, device: torch.device) -> bool:
    """Whether policy and batches are on one accelerator, so that they can share observations."""
    return policy_device.type != "cpu" and policy_device == device


class DeviceRows:
    """The observations of a rollout on an accelerator, where policies find and batches take them.

    Every observation crosses once, when the policy is asked about it, and nobody waits for that.
    """

    def __init__(self, buffers: StepBuffers, device: torch.device) -> None:
        self.leaves = buffers.leaves
        self._host = [torch.from_numpy(array) for array in buffers.observation]
        self._rows = [torch.zeros_like(host, device=device) for host in self._host]
        self.inputs = [rows.unbind(0) for rows in self._rows]
        self._pairs = list(zip(self._rows, self._host, strict=True))
        self._sent = 0  # rows of this rollout that are on the device

    def begin(self) -> None:
        """Begin a rollout."""
        self._sent = 0

    def send(self, t: int, envs: slice) -> None:
        """Have the observations of step ``t`` cross, or those of some environments."""
        first = t == 0 and envs.start in (None, 0)  # all have landed before the first step
        for rows, host in self._pairs:
            if first:
                rows[t].copy_(host[t], non_blocking=True)
            else:
                rows[t, envs].copy_(host[t, envs], non_blocking=True)
        if envs.stop in (None, len(self.inputs[0][t])):
            self._sent = t + 1

    def observations(
        self, finals: Sequence[Final], wait: bool
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """For each leaf what was acted on and what that led to, ``[num_envs, time, *shape]``.

        It has to wait if the environments go on writing before the policy has answered anything.
        """
        for rows, host in self._pairs:
            rows[self._sent :].copy_(host[self._sent :], non_blocking=not wait)
        found = []
        for k, rows in enumerate(self._rows):
            after = env_first(rows[1:])
            if finals:
                ended = {
                    "env": np.array([i for i, _, _ in finals]),
                    "step": np.array([t for _, t, _ in finals]),
                    "value": np.stack([values[k] for _, _, values in finals]),
                }
                sent = to_device(ended, rows.device)
                after[sent["env"], sent["step"]] = sent["value"]
            found.append((env_first(rows[:-1]), after))
        return found


def to_device(
    arrays: Mapping[NestedKey, Array], device: torch.device
) -> dict[NestedKey, torch.Tensor]:
    """Arrays as tensors on an accelerator, which cross as one, and are not waited for."""
    # Those of the largest type first, so that each lies where its type may.
    ordered = sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize)
    together = np.concatenate(
        [np.ascontiguousarray(a).reshape(-1).view(np.uint8) for _, a in ordered]
    )
    host = torch.from_numpy(together)
    if device.type == "cuda":
        host = host.pin_memory()
    sent = host.to(device, non_blocking=True)
    pieces = torch.split(sent, [array.nbytes for _, array in ordered])
    found = {
        key: piece.view(torch.from_numpy(np.zeros((), array.dtype)).dtype).view(array.shape)
        for (key, array), piece in zip(ordered, pieces, strict=True)
    }
    return {key: found[key] for key in arrays}
