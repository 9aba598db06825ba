"""Loads checkpoints of ``torchrl.trainers.Trainer``; `read` reads all but ``torch.save`` files."""

from __future__ import annotations

import copy
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDict
from torch import nn

from ..base import fs
from ..base.untrusted import one_line, shown
from ..collect.adapt import is_of_torchrl
from ..errors import CheckpointError, StateMismatchError, TakenError
from ..hooks.replay_buffer import ReplayBufferTrainer
from ..replay import ReplayBuffer
from ..store.backends import torch_save
from ..store.tree import is_segment_tree, segment_leaves, segment_tree
from .formats import Content, NotRead
from .formats import read as read
from .hook_bridge import build_lazy_parts

if TYPE_CHECKING:
    from ..loop.loop import Loop


OWN = ("collector", "loss_module", "state")
"""The trainer's own components in a checkpoint; the others are registered modules."""
_COUNTERS = ("collected_frames", "_optim_count")


def recognizes(content: Any) -> bool:
    """Return whether ``content`` is a checkpoint of TorchRL's trainer."""
    return isinstance(content, Content) or (
        isinstance(content, Mapping)
        and all(isinstance(content.get(name), Mapping) for name in OWN)
        and "collected_frames" in content["state"]
    )


def load(trainer: Loop, content: Mapping[str, Any]) -> None:
    """Load networks, counters, and the state of every hook of a known name.

    One warning lists what is not loaded or was not saved. A replay buffer of `hooktrainer.replay`
    is filled from TorchRL's. Networks of `hooktrainer.objectives` are matched by the names of the
    networks and the order of their parameters.

    Args:
        trainer: The trainer, with hooks registered under their names in the checkpoint.
        content: Result of `read`.

    Raises:
        StateMismatchError: If the networks differ; nothing is changed then.
        CheckpointError: If the state of the networks or the counters is malformed.
    """
    left = ["the random state, which is not saved there"]
    missing = [name for name in OWN if name not in content]
    if missing:
        left.append(f"what was not saved: {', '.join(missing)}")
    frames, steps = trainer.progress.frames, trainer.progress.optim_steps
    if "state" in content:
        try:
            frames, steps = (int(content["state"][key]) for key in _COUNTERS)
            if not (0 <= frames < 1 << 62 and 0 <= steps < 1 << 62):
                raise ValueError(f"{frames} frames and {steps} steps")
        except Exception as error:
            raise CheckpointError(
                f"TorchRL's checkpoint holds {shown(content['state'])} as its counters "
                f"({one_line(error)})."
            ) from error
    if "loss_module" in content:
        parameters = _parameters(trainer.loss_module, content["loss_module"])
        trainer.loss_module.load_state_dict(parameters)  # type: ignore[attr-defined]
    trainer.progress.frames, trainer.progress.optim_steps = frames, steps
    modules = trainer.registry.modules
    for name, state in content.items():
        if name in OWN or not state:
            continue
        if name not in modules:
            left.append(f"{name!r}: no hook has this name here; there are {sorted(modules)}")
        elif problem := _load_hook(trainer, modules[name], state):
            left.append(f"{name!r}: {problem}")
    if not is_of_torchrl(trainer.collector):
        left.append("running episodes: the collector begins new ones")
    elif "collector" in content:
        part = trainer.registry.part(trainer.source)
        if problem := _load_hook(trainer, part, content["collector"]):
            left.append(f"the collector's state: {problem}")
    warnings.warn(
        "from TorchRL's checkpoint everything was taken over but\n  " + "\n  ".join(left),
        stacklevel=3,
    )


def _parameters(module: Any, saved: Any) -> dict[str, Any]:
    """Map the state of a TorchRL loss to that of ``module``."""
    if not isinstance(saved, Mapping) or not all(isinstance(name, str) for name in saved):
        raise CheckpointError(f"TorchRL's checkpoint holds {shown(saved)} as its loss module.")
    build_lazy_parts(module, saved)
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
        f"{name}: {_shape(taken[name])} there, {_shape(value)} here"
        for name, value in own.items()
        if isinstance(value, torch.Tensor) and _shape(taken[name]) != _shape(value)
    ]
    if differing:
        raise StateMismatchError(
            "the networks in TorchRL's checkpoint are not these:\n  " + "\n  ".join(differing)
        )
    return taken


def _shape(value: Any) -> tuple[int, ...] | str:
    return tuple(value.shape) if isinstance(value, torch.Tensor) else shown(value)


def _load_hook(trainer: Loop, hook: Any, state: Any) -> str | None:
    """Load the state of one hook; return the reason if that fails."""
    if isinstance(state, NotRead):
        return str(state)
    if not isinstance(hook, nn.Module):
        hook = trainer.registry.part(hook)
    before = copy.deepcopy(hook.state_dict())
    try:
        buffer = getattr(hook, "replay_buffer", None)
        if isinstance(hook, ReplayBufferTrainer) and isinstance(buffer, ReplayBuffer):
            return _fill(buffer, state["replay_buffer"])
        if buffer is not None and "replay_buffer" in state:
            state = {"replay_buffer": _completed(buffer, state["replay_buffer"])}
        hook.load_state_dict(dict(state))
    except Exception as error:
        hook.load_state_dict(before)
        return f"its state has another form ({type(error).__name__}: {one_line(error)})"
    return None


def _completed(buffer: Any, state: Mapping[str, Any]) -> dict[str, Any]:
    """Complete the state of a TorchRL buffer with the buffer's own."""
    own = buffer.state_dict()
    state = {**own, **state, "_prefetch_state": own.get("_prefetch_state")}
    flat = state["_storage"].get("_storage")
    if isinstance(flat, Mapping) and not hasattr(flat, "_metadata"):
        # A snapshot does not hold the batch size: that of "done", which has one more dimension.
        if (done := flat.get("next.done")) is not None:
            shape = done.shape[:-1]
        else:
            shape = next(iter(flat.values())).shape[: buffer._storage.ndim]
        content = TensorDict(dict(flat), shape).unflatten_keys(".").state_dict()
        state["_storage"] = {**state["_storage"], "_storage": content}
    sampler, priorities = own.get("_sampler"), dict(state.get("_sampler") or {})
    for name in ("_sum_tree", "_min_tree"):
        if isinstance(leaves := priorities.get(name), torch.Tensor):
            kind, live = type(sampler[name]).__name__, segment_leaves(sampler[name])
            priorities[name] = segment_tree(leaves.to(live.dtype), kind)
    return {**state, "_sampler": priorities or sampler}


def _fill(buffer: ReplayBuffer, state: Mapping[str, Any]) -> str | None:
    """Fill a `hooktrainer.replay` buffer from the state of TorchRL's."""
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


# -- Exporting a checkpoint in the format of TorchRL's trainer with ``CKPT_BACKEND=torch``.


_HOOK = "hook/"


def export(state: Mapping[str, Any], file: Path) -> list[str]:
    """Write the state of a trainer as a file for TorchRL's ``Trainer.load_from_file``.

    Hooks and networks keep their names, so the loss module there must be of the same class.

    Args:
        state: Result of `Trainer.state_dict`.
        file: The file to write.

    Returns:
        One line for each thing left out, with the reason.

    Raises:
        CheckpointError: If the state is not a trainer's.
        TakenError: If the file exists.
    """
    if file.exists():
        raise TakenError(f"{file} is there already: choose another name for what is exported.")
    parts = dict(state.get("components", {}))
    if not {"progress", "loss_module"} <= parts.keys():
        raise CheckpointError("the checkpoint does not hold the state of a trainer with networks.")
    left = ["the random state, cadences, metrics and loggers, which TorchRL does not save"]
    if any(str(name).startswith("_value_estimator.") for name in parts["loss_module"]):
        left.append(
            "the kind of value estimator: call loss_module.make_value_estimator there first"
        )
    frames, steps = parts["progress"]["frames"], parts["progress"]["optim_steps"]
    counters = {"collected_frames": frames, "_last_log": {}, "_last_save": frames}
    content: dict[str, Any] = OrderedDict(
        collector=parts.get("collector", {}),
        loss_module=parts["loss_module"],
        state=counters | {"_optim_count": steps},
    )
    for name, part in parts.items():
        if name.startswith(_HOOK):
            content[name.removeprefix(_HOOK)] = dict(part)
    for name, part in list(content.items()):
        if problem := _unknown_to_torchrl(part):
            left.append(f"{name}: {problem}")
            content[name] = {}
    with fs.replace_file(file) as opened:
        torch_save(content, opened)
    return left


def _unknown_to_torchrl(node: Any) -> str | None:
    """Return why TorchRL cannot load a state; ``None`` if it may."""
    if is_segment_tree(node):
        return None  # of a prioritized sampler, which has to be loaded with weights_only=False
    if type(node) in (dict, OrderedDict):
        return next((p for item in node.values() if (p := _unknown_to_torchrl(item))), None)
    if type(node) in (list, tuple):
        return next((p for item in node if (p := _unknown_to_torchrl(item))), None)
    if isinstance(node, (*_PLAIN, torch.Tensor)):
        return None
    return f"it holds a {type(node).__module__}.{type(node).__name__}, which TorchRL does not load"


_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.Size, torch.device, torch.dtype)
