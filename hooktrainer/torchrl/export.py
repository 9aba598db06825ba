"""Exporting a checkpoint in the format of TorchRL's trainer with ``CKPT_BACKEND=torch``."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..errors import CheckpointError, TakenError
from ..store import fs
from ..store.tensor_spec import torch_save
from ..store.tree import is_segment_tree
from .hook_bridge import to_theirs

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
    content: dict[str, Any] = OrderedDict(
        collector=parts.get("collector", {}),
        loss_module=parts["loss_module"],
        state={
            "collected_frames": frames,
            "_last_log": {},
            "_last_save": frames,
            "_optim_count": steps,
        },
    )
    for name, part in parts.items():
        if name.startswith(_HOOK):
            content[name.removeprefix(_HOOK)] = to_theirs(part, steps)
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
