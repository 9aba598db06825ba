"""Loading checkpoints of ``torchrl.trainers.Trainer`` in each of its formats.

===================================== ==========================================================
``CKPT_BACKEND=torch``                a file of `torch.save`
``CKPT_BACKEND=memmap``               a directory with one for each state dict, and ``state.json``
``CKPT_BACKEND=torchsnapshot``        a directory with a ``.snapshot_metadata``
``checkpoint=Checkpoint(...)``        a directory or a zip archive with a ``manifest.json``
===================================== ==========================================================
"""

from __future__ import annotations

import base64
import copy
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDict
from torch import nn

from ..base.untrusted import (
    MalformedError,
    check_name,
    one_line,
    open_file,
    parse_json,
    refusing,
    shown,
)
from ..base.untrusted.array_file import plain_dtype
from ..base.untrusted.read_torch import DTYPES, read_torch, set_attributes
from ..collect.adapt import is_of_torchrl
from ..errors import CheckpointError, StateMismatchError
from ..hooks.replay_buffer import ReplayBufferTrainer
from ..replay import ReplayBuffer
from ..store.tree import segment_leaves, segment_tree
from .hook_bridge import build_value_estimator, has_value_estimator, to_ours
from .memmap import (
    Archive,
    Directory,
    Folder,
    is_of_trainer,
    manifest_of,
    read_snapshot,
    read_tensordict,
    read_values,
)

if TYPE_CHECKING:
    from ..loop.loop import Loop


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
    counters = _counters(content)
    if "loss_module" in content:
        parameters = _parameters(trainer.loss_module, _tensors(content["loss_module"]))
        trainer.loss_module.load_state_dict(parameters)  # type: ignore[attr-defined]
    if counters is not None:
        trainer.progress.frames, trainer.progress.optim_steps = counters
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


def _counters(content: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return frames and optimizer steps, if saved."""
    if "state" not in content:
        return None
    state = content["state"]
    try:
        frames, steps = int(state["collected_frames"]), int(state["_optim_count"])
        if not (0 <= frames < 1 << 62 and 0 <= steps < 1 << 62):
            raise ValueError(f"{frames} frames and {steps} steps")
    except Exception as error:
        raise CheckpointError(
            f"TorchRL's checkpoint holds {shown(state)} as its counters ({one_line(error)})."
        ) from error
    return frames, steps


def _tensors(state: Any) -> Mapping[str, Any]:
    """Check the state of a loss module."""
    if isinstance(state, NotRead):
        raise CheckpointError(f"TorchRL's checkpoint holds a loss module, but {state}.")
    if not isinstance(state, Mapping) or not all(isinstance(name, str) for name in state):
        raise CheckpointError(f"TorchRL's checkpoint holds {shown(state)} as its loss module.")
    return state


def _parameters(module: Any, saved: Mapping[str, Any]) -> dict[str, Any]:
    """Map the state of a TorchRL loss to that of ``module``."""
    if has_value_estimator(module):
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
        if isinstance(hook, nn.Module):
            hook.load_state_dict(dict(state))
            return None
        buffer = getattr(hook, "replay_buffer", None)
        if isinstance(hook, ReplayBufferTrainer) and isinstance(buffer, ReplayBuffer):
            return _fill(buffer, state["replay_buffer"])
        if buffer is not None and "replay_buffer" in state:
            state = {"replay_buffer": _completed(buffer, state["replay_buffer"])}
        hook.load_state_dict(to_ours(hook, state, trainer.progress))
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
        # A snapshot does not hold the batch size.
        shape = next(iter(flat.values())).shape[: buffer._storage.ndim]
        content = TensorDict(dict(flat), shape).unflatten_keys(".").state_dict()
        state["_storage"] = {**state["_storage"], "_storage": content}
    sampler, priorities = own.get("_sampler"), dict(state.get("_sampler") or {})
    for name in ("_sum_tree", "_min_tree"):
        if isinstance(leaves := priorities.get(name), torch.Tensor):
            kind, live = type(sampler[name]).__name__, segment_leaves(sampler[name])
            priorities[name] = segment_tree(kind, leaves.to(live.dtype))
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


OWN = ("collector", "loss_module", "state")
"""The trainer's own components in a checkpoint; the others are registered modules."""
_RENAMED = {"trainer_state": "state"}
_MODULE = "trainer_module."


class Content(dict[str, Any]):
    """The content of a checkpoint directory or archive."""


def recognizes(content: Any) -> bool:
    """Return whether ``content`` is a checkpoint of TorchRL's trainer."""
    return isinstance(content, Content) or (
        isinstance(content, Mapping)
        and all(isinstance(content.get(name), Mapping) for name in OWN)
        and "collected_frames" in content["state"]
    )


def read(path: Path) -> Content | None:
    """Read a checkpoint directory or archive; return ``None`` for any other file.

    Raises:
        CheckpointError: If it is damaged, or another directory.
    """
    if not path.is_dir():
        with refusing(path, CheckpointError), open_file(path) as file:
            if not zipfile.is_zipfile(file):
                return None
    with (
        refusing(path, CheckpointError),
        closing(Directory(path) if path.is_dir() else Archive(path)) as folder,
    ):
        manifest = manifest_of(folder)
        if manifest is not None:
            return _unified(folder, manifest)
        if "state.json" in folder and "loss_module/meta.json" in folder:
            return _memmap(folder)
        if is_of_trainer(folder):
            return Content(read_snapshot(folder))
    if path.is_dir():
        raise CheckpointError(
            f"{path} is a directory, and none that TorchRL's trainer saved. A checkpoint of a run "
            "is loaded by --resume, or with CheckpointManager.load."
        )
    return None


def _unified(folder: Folder, manifest: Mapping[str, Any]) -> Content:
    components = read_components(folder, manifest)
    components.pop("policy", None)  # its parameters are the loss module's as well
    return Content(
        (_RENAMED.get(name, name.removeprefix(_MODULE)), state)
        for name, state in components.items()
    )


def _memmap(folder: Folder) -> Content:
    names = [name for name in sorted(folder.names()) if f"{name}/meta.json" in folder]
    content = {name: read_tensordict(folder, name) for name in names}
    return Content(content, state=parse_json(folder.read("state.json"), nan=True))


class NotRead(str):
    """The reason why a component was not read."""


def read_components(folder: Folder, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return each component's state by name; a `NotRead` for an unknown format."""
    found: dict[str, Any] = {}
    places: set[str] = set()
    for name, record in manifest["components"].items():
        place = check_name(record["path"])
        if place in places:
            raise MalformedError(f"two components are at {place}")
        places.add(place)
        if record["adapter"] == "torchrl.state_dict":
            found[name] = _state_dict(folder, place)
        elif record["adapter"] == "torchrl.dump_load":
            found[name] = _replay_buffer(folder, place)
        else:
            found[name] = NotRead(f"it was written by {record['adapter']!r}")
    return found


def _state_dict(folder: Folder, place: str) -> Any:
    if f"{place}/state.pt" in folder:
        return read_torch(folder.read(f"{place}/state.pt"))
    if f"{place}/state/meta.json" not in folder:
        if not folder.names(place):
            raise MalformedError(f"it has no {place}")
        return NotRead("it is packed; save it with StateDictCheckpointAdapter('directory')")
    tensors = read_tensordict(folder, f"{place}/state")
    return _Decoder(tensors).node(parse_json(folder.read(f"{place}/state.json"), nan=True))


class _Decoder:
    """Rebuilds a state dict from its schema and tensors."""

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        self._tensors = tensors

    def node(self, node: Mapping[str, Any]) -> Any:
        decode = _DECODERS.get(node["kind"])
        if decode is None:
            raise MalformedError(f"its state holds a {node['kind']!r}, which is unknown")
        return decode(self, node)

    def items(self, node: Mapping[str, Any]) -> list[Any]:
        return [self.node(item) for item in node["items"]]

    def tensor(self, node: Mapping[str, Any]) -> torch.Tensor:
        tensor = self._tensors[node["key"]]
        if not isinstance(tensor, torch.Tensor):
            raise MalformedError(f"{node['key']!r} is no tensor")
        return tensor

    def mapping(self, node: Mapping[str, Any]) -> dict[Any, Any]:
        pairs = ((self.node(key), self.node(value)) for key, value in node["items"])
        if node["kind"] == "dict":
            return dict(pairs)
        mapping = OrderedDict(pairs)
        if node.get("metadata") is not None:
            set_attributes(mapping, {"_metadata": self.node(node["metadata"])})
        return mapping

    def array(self, node: Mapping[str, Any]) -> Any:
        array = self.tensor(node).numpy()
        if array.dtype != plain_dtype(node["dtype"]):
            raise MalformedError(f"an array of {array.dtype} is to be one of {node['dtype']}")
        return array

    def scalar(self, node: Mapping[str, Any]) -> Any:
        dtype, value = plain_dtype(node["dtype"]), node["value"]
        if dtype.kind not in "biufU" or not isinstance(value, (bool, int, float, str)):
            raise MalformedError(f"{shown(value)} is no number of the dtype {dtype}")
        return dtype.type(value)


_DECODERS: dict[str, Callable[[_Decoder, Mapping[str, Any]], Any]] = {
    "tensor": _Decoder.tensor,
    "numpy": _Decoder.array,
    "dict": _Decoder.mapping,
    "ordered_dict": _Decoder.mapping,
    "list": _Decoder.items,
    "tuple": lambda decoder, node: tuple(decoder.items(node)),
    "set": lambda decoder, node: set(decoder.items(node)),
    "frozenset": lambda decoder, node: frozenset(decoder.items(node)),
    "slice": lambda decoder, node: slice(*decoder.items(node)),
    "range": lambda _, node: range(*node["items"]),
    "torch_size": lambda _, node: torch.Size(node["items"]),
    "torch_device": lambda _, node: torch.device(node["value"]),
    "torch_dtype": lambda _, node: DTYPES[node["value"]],
    "path": lambda _, node: Path(node["value"]),
    "bytes": lambda _, node: base64.b64decode(node["value"], validate=True),
    "bytearray": lambda _, node: bytearray(base64.b64decode(node["value"], validate=True)),
    "complex": lambda _, node: complex(node["real"], node["imag"]),
    "numpy_scalar": _Decoder.scalar,
    "ellipsis": lambda *_: Ellipsis,
    "value": lambda _, node: node["value"],
}


def _replay_buffer(folder: Folder, place: str) -> Any:
    """Read a replay buffer with one tensor storage."""
    if f"{place}/storage/storage_metadata.json" not in folder:
        return NotRead("it is no replay buffer with a storage of tensors")
    about = parse_json(folder.read(f"{place}/storage/storage_metadata.json"))
    if about.get("is_pytree") is not False or f"{place}/storage/meta.json" not in folder:
        return NotRead("its storage holds something else than a TensorDict")
    writer = parse_json(folder.read(f"{place}/writer/metadata.json"))
    shape = parse_json(folder.read(f"{place}/storage/meta.json"))["shape"]
    content = TensorDict(read_tensordict(folder, f"{place}/storage"), batch_size=shape)
    state = {
        "_storage": {
            "_storage": content.state_dict(),
            "initialized": True,
            "_len": about["len"],
        },
        "_writer": {"_cursor": writer["cursor"], "_write_count": writer.get("write_count", 0)},
    }
    if f"{place}/sampler/sumtree.memmap" in folder:
        state["_sampler"] = _priorities(folder, f"{place}/sampler")
    return {"replay_buffer": state}


def _priorities(folder: Folder, place: str) -> dict[str, Any]:
    about = parse_json(folder.read(f"{place}/sampler_metadata.json"))
    trees = {
        f"_{short}_tree": read_values(
            folder, f"{place}/{short}tree.memmap", int(about["_max_capacity"]), torch.float64
        )
        for short in ("sum", "min")
    }
    return about | trees
