"""`SymmetryAugmentation`: trains on the mirror images of the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from tensordict import NestedKey, TensorDictBase
from torch.nn.functional import mse_loss

from ..base.checks import check_rate
from ..errors import ConfigError, HookError
from ..loop.hook import AFTER, TrainerHookBase
from ..loop.loop import Loop
from ..objectives.common import Entries, Loss, Term

Mirror: TypeAlias = Callable[[Entries], Mapping[NestedKey, torch.Tensor]]
"""Maps entries to those that the mirror changes."""

_COLLECTED = "is_collected"


class SymmetryAugmentation(TrainerHookBase):
    """Extends mini-batches by their mirror images, and may add a symmetry loss for the policy.

    With ``augment`` each mini-batch is followed by its image under each symmetry: observations and
    actions are mirrored, other entries are copied. With ``mirror_coeff`` there is ``loss_mirror``:
    the mean squared difference between the policy's best action in the mirrored state and the
    mirrored best action, without gradient through the latter. Mittal, Rudin, Klemm, Allshire and
    Hutter, 2024, Symmetry Considerations for Learning Task Symmetric Robot Policies,
    arXiv:2403.04359; as in rsl_rl. Hidden states are copied unless the symmetry returns them.

    Args:
        mirrors: One or several symmetries without the identity. Each maps a dict of the networks'
            inputs and the action, ``[*batch, ...]``, to a dict of the mirrored ones, new tensors of
            the same shapes.
        augment: Whether to extend mini-batches.
        mirror_coeff: Factor of ``loss_mirror``; 0 for none.

    Raises:
        ConfigError: If there is nothing to do.
        HookError: During training, if a symmetry returns wrong entries.

    Examples:
        >>> def left_to_right(entries):
        ...     signs = torch.tensor([1.0, -1.0, -1.0])
        ...     observation, action = entries["observation"], entries["action"]
        ...     return {"observation": observation * signs, "action": -action}
        >>> hook = SymmetryAugmentation(left_to_right)
    """

    def __init__(
        self, mirrors: Mirror | Sequence[Mirror], *, augment: bool = True, mirror_coeff: float = 0.0
    ) -> None:
        self.mirrors = [mirrors] if callable(mirrors) else list(mirrors)
        self.augment = augment
        self.at = (("process_optim_batch", "__call__", AFTER),) if augment else ()
        self.mirror_coeff = check_rate("SymmetryAugmentation: mirror_coeff", mirror_coeff)
        if not self.mirrors or not (augment or mirror_coeff):
            raise ConfigError(
                f"SymmetryAugmentation({len(self.mirrors)} symmetries, {augment=}, {mirror_coeff=})"
                ": there is nothing to do."
            )
        self._keys: list[NestedKey] | None = None
        self._action: NestedKey = "action"
        self._actor: Any = None

    def __call__(self, batch: TensorDictBase) -> TensorDictBase:
        """Return the mini-batch, ``[n, ...]``, followed by its images, ``[copies * n, ...]``.

        Raises:
            HookError: If a symmetry returns no action or a wrong shape.
        """
        keys = self._keys or list(batch.keys(include_nested=True, leaves_only=True))
        seen = {key: value for key in keys if (value := batch.get(key, None)) is not None}
        parts = [batch.copy()]
        for mirror in self.mirrors:
            part = batch.copy()
            for key, value in self._checked(mirror(dict(seen)), seen).items():
                part.set(key, value)
            parts.append(part)
        device = seen[self._action].device
        for place, part in enumerate(parts):
            part.set(_COLLECTED, torch.full(part.batch_size, place == 0, device=device))
        return torch.cat(parts)

    def _checked(self, image: Any, seen: Entries) -> Mapping[NestedKey, torch.Tensor]:
        if not isinstance(image, Mapping) or self._action not in image:
            raise HookError(
                f"SymmetryAugmentation: the symmetry returned {image!r:.80}; return a dict with "
                f"{self._action!r} and the other entries that the mirror changes."
            )
        for key, value in image.items():
            if key not in seen or value.shape != seen[key].shape:
                known = {name: list(entry.shape) for name, entry in seen.items()}
                raise HookError(
                    f"SymmetryAugmentation: the mirror image has {key!r} of {list(value.shape)}; "
                    f"the entries are {known}."
                )
        return image

    def _mirror_loss(self, entries: Entries) -> dict[str, torch.Tensor]:
        actor = self._actor
        copies = 1 + len(self.mirrors) if self.augment else 1
        # The collected rows come first.
        seen = {key: entries[key][: len(entries[key]) // copies] for key in self._keys or ()}
        here = actor.mode(*[seen[key] for key in actor.in_keys])
        best = {**seen, self._action: here.detach()}
        loss = here.new_zeros(())
        for mirror in self.mirrors:
            image = {**best, **self._checked(mirror(dict(best)), best)}
            there = actor.mode(*[image[key] for key in actor.in_keys])
            loss = loss + mse_loss(there, image[self._action])
        return {"loss_mirror": self.mirror_coeff / len(self.mirrors) * loss}

    def register(self, trainer: Loop, name: str = "symmetry_augmentation") -> None:
        """Register at ``process_optim_batch``, after the samplers, and with the loss."""
        super().register(trainer, name)
        loss: Any = trainer.loss_module
        if hasattr(loss, "policy_terms"):
            raise ConfigError(
                f"SymmetryAugmentation: the policy of {type(loss).__name__} learns from whole "
                "batches, and mini-batches are what this hook extends: use PPO."
            )
        if isinstance(loss, Loss):
            self._read_keys(loss)
        if self.mirror_coeff:
            distribution = getattr(self._actor, "distribution", None)
            has_mode = hasattr(self._actor, "mode") and getattr(distribution, "has_mode", True)
            if not has_mode:
                raise ConfigError(
                    f"SymmetryAugmentation: {type(loss).__name__} has no policy of continuous "
                    "actions: leave mirror_coeff out."
                )
            loss.add_term(Term(self._keys or [], self._mirror_loss))

    def _read_keys(self, loss: Any) -> None:
        """Find the policy, the action, and the entries that the loss's networks read."""
        networks = [getattr(loss, name, None) for name in ("actor_network", "critic_network")]
        self._action = getattr(loss.tensor_keys, "action", "action")
        if self._action not in loss.in_keys:
            raise ConfigError(
                f"SymmetryAugmentation mirrors the actions of one agent, {self._action!r}, and "
                f"{type(loss).__name__} reads none: leave the hook out."
            )
        if networks[0] is not None:
            self._actor = networks[0]
            read = [key for network in networks if network is not None for key in network.in_keys]
            following = [key for key in loss.in_keys if isinstance(key, tuple)]
            self._keys = list(dict.fromkeys([*read, *following, self._action]))
        if self.augment and hasattr(loss.tensor_keys, "collected"):
            loss.set_keys(collected=_COLLECTED)
