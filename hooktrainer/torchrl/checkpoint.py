"""Checkpoints of ``torchrl.trainers.Trainer``, written with ``CKPT_BACKEND=torch``.

They are a dictionary of the state dicts of the collector, the loss module, the trainer's counters
and every registered module. The random state is not in them.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDict
from torch import nn

from ..errors import StateMismatchError
from ..hooks.replay_buffer import ReplayBufferTrainer
from ..replay import ReplayBuffer
from ..state import build_value_estimator

if TYPE_CHECKING:
    from ..trainer import Trainer

_OWN = ("collector", "loss_module", "state")


def recognizes(content: Any) -> bool:
    """Whether ``content``, read from a file, is such a checkpoint."""
    return (
        isinstance(content, Mapping)
        and all(isinstance(content.get(name), Mapping) for name in _OWN)
        and "collected_frames" in content["state"]
    )


def load(trainer: Trainer, content: Mapping[str, Any]) -> None:
    """Take over the networks, the counters, and the state of every hook of a known name.

    What is not taken over is said in one warning. A replay buffer of `hooktrainer.replay` is filled
    from TorchRL's; networks of `hooktrainer.objectives` are matched with TorchRL's by the names of
    the networks and the order of their parameters.

    Args:
        trainer: The trainer, with hooks registered under the names they had.
        content: What `recognizes` accepts.

    Raises:
        StateMismatchError: If the networks differ. Nothing is changed then.
    """
    parameters = _parameters(trainer.loss_module, content["loss_module"])
    left = ["the random state, which is not saved there"]
    trainer.loss_module.load_state_dict(parameters)  # type: ignore[attr-defined]
    trainer.progress.frames = int(content["state"]["collected_frames"])
    trainer.progress.optim_steps = int(content["state"]["_optim_count"])
    modules = trainer.registry.modules
    for name, state in content.items():
        if name in _OWN or not state:
            continue
        if name not in modules:
            left.append(f"{name!r}: no hook has this name here; there are {sorted(modules)}")
        elif problem := _load_hook(modules[name], state):
            left.append(f"{name!r}: {problem}")
    if type(trainer.collector).__module__.startswith("torchrl."):
        if problem := _load_hook(trainer.collector, content["collector"]):
            left.append(f"the collector's state: {problem}")
    else:
        left.append("running episodes: the collector begins new ones")
    warnings.warn(
        "from TorchRL's checkpoint everything was taken over but\n  " + "\n  ".join(left),
        stacklevel=3,
    )


def _parameters(module: Any, saved: Mapping[str, Any]) -> dict[str, Any]:
    """The state of ``module``, taken from that of a TorchRL loss."""
    if hasattr(type(module), "value_estimator"):
        build_value_estimator(module, saved)
    own = module.state_dict()
    if own.keys() == saved.keys():
        taken = dict(saved)
    else:
        taken = dict(own)
        for network, _ in module.named_children():
            names = [name for name in own if name.startswith(f"{network}.")]
            prefix = f"{network}_params."
            values = [value for name, value in saved.items() if name.startswith(prefix)]
            if len(values) != len(names):
                raise StateMismatchError(
                    f"TorchRL's checkpoint holds {len(values)} tensors of {network!r}, and the "
                    f"loss module has {len(names)} here. It holds: {sorted(saved)}."
                )
            taken |= dict(zip(names, values, strict=True))
    differing = [
        f"{name}: {tuple(taken[name].shape)} there, {tuple(value.shape)} here"
        for name, value in own.items()
        if isinstance(value, torch.Tensor) and taken[name].shape != value.shape
    ]
    if differing:
        raise StateMismatchError(
            "the networks in TorchRL's checkpoint are not these:\n  " + "\n  ".join(differing)
        )
    return taken


def _load_hook(hook: Any, state: Mapping[str, Any]) -> str | None:
    """Load the state of one hook; return why that cannot be done."""
    if isinstance(hook, ReplayBufferTrainer) and isinstance(hook.replay_buffer, ReplayBuffer):
        return _fill(hook.replay_buffer, state["replay_buffer"])
    if isinstance(hook, nn.Module):
        hook.load_state_dict(dict(state))
        return None
    before = copy.deepcopy(hook.state_dict())
    try:
        hook.load_state_dict(dict(state))
    except Exception as error:
        hook.load_state_dict(before)
        return f"its state has another form ({type(error).__name__}: {error})"
    return None


def _fill(buffer: ReplayBuffer, state: Mapping[str, Any]) -> str | None:
    """Fill one of our buffers from the state of TorchRL's."""
    storage, writer = state.get("_storage", {}), state.get("_writer", {})
    flat = storage.get("_storage")
    if not isinstance(flat, Mapping):
        return f"TorchRL's storage holds {type(flat).__name__}, not tensors in memory"
    columns = {name: value for name, value in flat.items() if isinstance(value, torch.Tensor)}
    rows = TensorDict(columns, batch_size=[len(next(iter(columns.values())))]).unflatten_keys(".")
    length, cursor = int(storage["_len"]), int(writer.get("_cursor", 0))
    if length == len(rows) and cursor:  # full: the oldest transition is where it writes next
        rows = torch.cat([rows[cursor:], rows[:cursor]])
    if buffer.keys is not None:
        rows = rows.select(*buffer.keys)
    buffer.extend(rows[:length])
    return None
