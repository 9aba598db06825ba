"""`load_policy`: a saved policy, or one exported to ONNX, as a function."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, overload

import torch
from torch import Tensor

from ..base.lazy import import_optional
from ..base.untrusted import MalformedError, read_file, refusing
from ..errors import ConfigError, DamagedCheckpointError
from .contract import Contract, read_contract
from .interface import Array, Interface
from .loaded import LoadedPolicy
from .module import PolicyModule
from .saved import SavedPolicy, find_policy

INSTALL: Final = "hooktrainer[onnx]"
Run: TypeAlias = Callable[[Sequence[Array]], list[Array]]
"""From arrays of the inputs to those of the outputs."""


Spec: TypeAlias = SavedPolicy | str | os.PathLike[str]


@overload
def load_policy(
    saved: Spec,
    *,
    deterministic: bool = ...,
    seed: int | None = ...,
    trust: bool = ...,
    as_module: Literal[False] = ...,
) -> LoadedPolicy: ...


@overload
def load_policy(
    saved: Spec,
    *,
    deterministic: bool = ...,
    seed: int | None = ...,
    trust: bool = ...,
    as_module: Literal[True],
) -> PolicyModule: ...


def load_policy(
    saved: Spec,
    *,
    deterministic: bool = True,
    seed: int | None = None,
    trust: bool = False,
    as_module: bool = False,
) -> LoadedPolicy | PolicyModule:
    """Load a saved policy, without the code that trained it.

    Args:
        saved: An item of `list_policies`; or a directory such as ``<run>/policies/latest``, or
            anything else that `find_policy` accepts, such as a file of `hooktrainer pack`; or an
            ONNX file of `export_policy`.
        deterministic: Whether it takes the best action; otherwise it samples, as in training.
        seed: Seed of the samples; random by default.
        trust: Whether its environment may be made by code that it names: a script, a module.
        as_module: Whether to return it as an `nn.Module` instead, with its trained parameters: to
            be trained further, to be imitated, or to begin another run with (``init_policy``).

    Raises:
        ConfigError: If it has to sample, but its sampling was not saved; or if a policy in ONNX
            is to be a module.
        CheckpointError: If it does not exist, calls a forbidden operator, or would need too much
            memory; nothing in it is executed.
        DamagedCheckpointError: If its files have changed.

    Examples:
        >>> policy = load_policy("runs/a/policies/latest")  # doctest: +SKIP
        >>> policy(np.zeros(4, dtype="float32"))  # doctest: +SKIP
        np.int64(1)
    """
    if not isinstance(saved, SavedPolicy):
        if (file := Path(saved)).suffix == ".onnx":
            if as_module:
                raise ConfigError(
                    f"{file} cannot be a module: give the policy that it was exported from."
                )
            return _load_onnx(file, deterministic=deterministic, trust=trust)
        saved = find_policy(saved)
    policy = LoadedPolicy(saved, deterministic=deterministic, seed=seed, trust=trust)
    return PolicyModule(policy) if as_module else policy


# -- Policies in ONNX.


def _load_onnx(file: Path, *, deterministic: bool, trust: bool) -> LoadedPolicy:
    contract = read_contract(file)
    if contract.samples is deterministic:
        raise ConfigError(
            f"{file} samples: load it with deterministic=False (hooktrainer play --draw)."
            if deterministic
            else f"{file} takes the best action: export the policy with --draw to sample."
        )
    with refusing(f"{file} cannot be loaded", DamagedCheckpointError):
        data = read_file(file, file.parent, contract.size)
        if len(data) != contract.size or hashlib.sha256(data).hexdigest() != contract.sha256:
            raise MalformedError("it does not match the hash in its contract")
        return _OnnxPolicy(contract, file, data, trust)


class _OnnxPolicy(LoadedPolicy):
    """A policy that ONNX Runtime computes."""

    def __init__(self, contract: Contract, file: Path, data: bytes, trust: bool) -> None:
        self.saved, self.interface = contract.saved(file), contract.interface
        self.deterministic = not contract.samples
        self.program: Any = _onnx_program(session(data), self.interface)
        self.initial_states = {one.input: one.tensor for one in contract.hidden_states}
        self._trust, self._states = trust, []
        self.seed(0)


def _onnx_program(run: Run, interface: Interface) -> Callable[..., list[Tensor]]:
    """A function in place of a `Program`: returns the action of each group, and hidden states."""

    def program(*inputs: Tensor) -> list[Tensor]:
        found = iter(map(torch.from_numpy, run([value.numpy() for value in inputs])))
        results = []
        for group in interface.groups:
            parts = [next(found) for _ in group.action.parts]
            if group.action.parts[0].path:
                parts = [torch.cat([part.reshape(len(part), -1).double() for part in parts], -1)]
            results += parts
        return [*results, *found]

    return program


def session(data: bytes) -> Run:
    """A function that runs an ONNX file's content, with one thread."""
    runtime = import_optional("onnxruntime", "a policy in ONNX", INSTALL)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    opened = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [one.name for one in opened.get_inputs()]

    def run(arrays: Sequence[Array]) -> list[Array]:
        return opened.run(None, dict(zip(names, arrays, strict=True)))

    return run
