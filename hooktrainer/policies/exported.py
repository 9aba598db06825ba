"""`export_policy`: a saved policy as an ONNX file or a `torch.export` program, and its contract.

What is written acts by itself: it takes observations as the environment gives them, and returns
actions as the environment takes them. It is compared with the policy before it is kept.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import itertools
import logging
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import torch
from torch import Tensor

from ..base import fs
from ..base.checks import check_count, check_positive
from ..base.lazy import import_optional
from ..base.untrusted import one_line
from ..errors import CheckpointError, ConfigError
from .contract import (
    SCHEMA,
    Contract,
    Format,
    Input,
    Output,
    bounds_of,
    contract_of,
    read_contract,
    states_of,
)
from .interface import Array
from .load import INSTALL, Run, load_policy, session
from .loaded import LoadedPolicy
from .module import PolicyModule, action_name, environment_actions
from .play import play_episodes
from .program import Program
from .saved import SEED, SavedPolicy

RECORDED: Final = 10_000
"""Observations by which an export is compared with the policy."""
TOLERANCE: Final = 1e-4
"""Largest difference of a number, absolute and relative; integers have to be equal."""


# -- What a policy observed and did, to compare with.


class _Enough(Exception):  # noqa: N818
    """Enough was recorded."""


def record(
    policy: LoadedPolicy, observations: int = RECORDED, env: Any = None
) -> tuple[list[Tensor], list[Tensor]]:
    """Play a policy; return its inputs and its actions, ``[observations, ...]`` each.

    Both have the environment's values, and then the hidden states. If nothing can make the
    environment, the observations are random numbers.
    """
    check_count("observations", observations)
    program, interface = policy.program, policy.interface
    inputs: list[list[Tensor]] = []
    results: list[list[Tensor]] = []

    def recorded(*given: Tensor) -> list[Tensor]:
        found = program(*given)
        seen = [
            value if one.start is None else (value + torch.as_tensor(one.start)).to(value.dtype)
            for one, value in zip(interface.inputs, given, strict=False)
        ]
        inputs.append([*seen, *given[len(seen) :]])
        results.append(environment_actions(interface, found))
        if len(inputs) == observations:
            raise _Enough
        return found

    policy.program = cast(Any, recorded)
    try:
        for seed in itertools.count(SEED):
            if env is None and policy.saved.environment.reason is not None:
                _draw_episode(policy, seed)
            else:
                play_episodes(policy, seed, 1, env=env)
    except _Enough:
        policy.reset()
    finally:
        policy.program = program
    return _columns(inputs), _columns(results)


def _draw_episode(policy: LoadedPolicy, seed: int, length: int = 100) -> None:
    """Have it act on normally distributed numbers, with all actions allowed, and on zeros."""
    interface, random = policy.interface, torch.Generator().manual_seed(seed)
    policy.reset()
    for _ in range(length):
        drawn = []
        for one in interface.inputs:
            value = torch.zeros(1, *interface.agent_dimension(one), *one.shape)
            value = value.normal_(generator=random) if one.torch_dtype.is_floating_point else value
            drawn.append(value + 1 if one.torch_dtype is torch.bool else value)
        policy.outputs([x.to(y.torch_dtype) for x, y in zip(drawn, interface.inputs, strict=True)])


def _columns(rows: list[list[Tensor]]) -> list[Tensor]:
    return [torch.cat(column) for column in zip(*rows, strict=True)]


# -- Writing.


def export_policy(
    saved: SavedPolicy | str | os.PathLike[str],
    file: str | os.PathLike[str],
    *,
    kind: Format = "onnx",
    deterministic: bool = True,
    observations: int = RECORDED,
    tolerance: float = TOLERANCE,
    env: Any = None,
    trust: bool = False,
) -> Contract:
    """Write a saved policy as one file that needs no hooktrainer, and its contract.

    Observation normalization, encoders, masks, bounds and hidden states are inside. The contract,
    ``<file>.yaml``, lists inputs and outputs, the environment and the run.

    Args:
        saved: As for `load_policy`.
        file: The file to write, such as ``policy.onnx``.
        kind: ONNX, or a program of `torch.export` (``.pt2``).
        deterministic: Whether it takes the best action; otherwise it samples.
        observations: How many observations of its environment it is compared on; random ones, if
            its environment was built before training.
        tolerance: Largest difference of a number, absolute and relative. Integers have to be equal.
            If it samples, the distribution of its actions is compared.
        env: The environment to observe; by default one is made.
        trust: As for `load_policy`.

    Returns:
        The contract.

    Raises:
        ConfigError: If the policy cannot be exported, or what is written acts differently.
        MissingPackageError: If a package that writes or plays ONNX is not installed.
    """
    path = _free(Path(file), kind)
    check_positive("tolerance", tolerance)
    policy = load_policy(saved, deterministic=deterministic, seed=0, trust=trust)
    if not isinstance(policy.program, Program):
        raise ConfigError(f"{saved!s:.200} is exported already: give the run, such as runs/a@best.")
    made = env
    if made is None and policy.saved.environment.reason is None:
        made = policy.make_env()
    try:
        inputs, results = record(policy, observations, made)
        read = policy.interface.inputs
        bounds = [bounds_of(made, one, policy.interface.members(one)) for one in read]
        shapes = [(*policy.interface.agent_dimension(one), *one.shape) for one in read]
        rate = (getattr(made, "metadata", None) or {}).get("render_fps")
        rate = float(rate) if isinstance(rate, (int, float)) else None
    finally:
        if made is not env:
            made.close()
    module = PolicyModule(policy).eval()
    data, run = _ENCODERS[kind](module, [value[:3] for value in inputs])
    difference = compare(run, inputs, results, tolerance if deterministic else None)
    facts = dataclasses.asdict(policy.saved)
    contract = Contract(
        schema=SCHEMA,
        kind=kind,
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        samples=not deterministic,
        agents={group.name: group.agents for group in policy.interface.groups if group.agents},
        inputs=tuple(
            Input(name, one.keys, one.path, shape, one.dtype, one.group, **limits)
            for name, one, shape, limits in zip(module.inputs, read, shapes, bounds, strict=False)
        ),
        outputs=tuple(
            Output(
                action_name(group, part),
                part.path,
                (*[len(group.agents)] * bool(group.agents), *part.shape),
                part.dtype,
                group.name or None,
            )
            for group in policy.interface.groups
            for part in group.action.parts
        ),
        hidden_states=states_of(module.inputs[len(read) :], [*policy.initial_states.values()]),
        observations=observations,
        largest_difference=difference,
        steps_per_second=rate,
        policy={name: fact for name, fact in facts.items() if name not in ("path", "nbytes")},
        versions={package: metadata.version(package) for package in _PACKAGES[kind]},
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    fs.write_atomically(path, data)
    fs.write_atomically(contract_of(path), contract.encode())
    return contract


def _free(file: Path, kind: Format) -> Path:
    """Check that neither the file nor its contract would replace something else."""
    if file.suffix != _SUFFIXES[kind]:
        raise ConfigError(f"{file}: choose a name that ends in {_SUFFIXES[kind]}.")
    contract = contract_of(file)
    if contract.exists():
        other = None
        with suppress(CheckpointError):
            other = read_contract(file).kind
        if other != kind:
            raise ConfigError(
                f"{contract} would be the contract of {file.name}, and is something else: choose "
                "another name."
            )
    return file


_SUFFIXES: Final = {"onnx": ".onnx", "program": ".pt2"}
_PACKAGES: Final = {"onnx": ("torch", "onnx", "onnxruntime"), "program": ("torch",)}


# -- The two formats: each gives the bytes of a file, and a function that runs them.


def _exported(module: PolicyModule, examples: Sequence[Tensor]) -> Any:
    """The module as `torch.export` has it, for any batch."""
    batch = torch.export.Dim("batch")
    dynamic = tuple({0: batch} for _ in examples)
    with torch.no_grad(), _exporting():
        program = torch.export.export(
            module, tuple(examples), dynamic_shapes=(dynamic,), strict=False
        )
        return program.run_decompositions(_SAMPLERS)


def _as_program(module: PolicyModule, examples: Sequence[Tensor]) -> tuple[bytes, Run]:
    program = _exported(module, examples)
    file = io.BytesIO()
    torch.export.save(program, file)
    data = file.getvalue()
    loaded = torch.export.load(io.BytesIO(data)).module()

    def run(arrays: Sequence[Array]) -> list[Array]:
        with torch.no_grad():
            return [value.numpy() for value in loaded(*map(torch.from_numpy, arrays))]

    return data, run


def _as_onnx(module: PolicyModule, examples: Sequence[Tensor]) -> tuple[bytes, Run]:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        import_optional(package, "exporting to ONNX", INSTALL)
    program = _exported(module, examples)
    with _exporting():
        model = torch.onnx.export(
            program,
            input_names=module.inputs,
            output_names=module.outputs,
            dynamo=True,
            verbose=False,
        )
    assert model is not None
    data = model.model_proto.SerializeToString()
    return data, session(data)


_ENCODERS: Final = {"onnx": _as_onnx, "program": _as_program}


@contextmanager
def _exporting() -> Iterator[None]:
    """Switch off the exporters' warnings and log lines, and shorten their errors."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:  # whatever an operator or an exporter raises
        reason = one_line(f"{type(error).__name__}: {error}", 300)
        raise ConfigError(
            f"the policy cannot be exported: {reason}. Use hooktrainer.load_policy for it."
        ) from error
    finally:
        logger.setLevel(level)


def _exponential(rates: Tensor, lambd: float = 1.0, generator: Any = None) -> Tensor:
    return -torch.log1p(-torch.rand_like(rates)) / lambd


def _bernoulli(chances: Tensor, generator: Any = None) -> Tensor:
    return (torch.rand_like(chances) < chances).to(chances.dtype)


def _uniform(like: Tensor, low: float = 0.0, high: float = 1.0, generator: Any = None) -> Tensor:
    return low + (high - low) * torch.rand_like(like)


_SAMPLERS: Final = {
    torch.ops.aten.exponential.default: _exponential,
    torch.ops.aten.bernoulli.default: _bernoulli,
    torch.ops.aten.uniform.default: _uniform,
}
"""Random operators that ONNX lacks, by those that it has."""


# -- Comparing.


def compare(
    run: Run, inputs: Sequence[Tensor], results: Sequence[Tensor], tolerance: float | None
) -> float:
    """Run an export on inputs, all at once and the first of them alone.

    Args:
        run: What runs it.
        inputs: Its inputs, ``[observations, ...]`` each.
        results: What it should return.
        tolerance: The largest difference of a number, absolute and relative; without one, the
            distributions over all observations are compared.

    Returns:
        The largest difference of a number.

    Raises:
        ConfigError: If it returns something else.
    """
    arrays, expected = ([value.numpy() for value in values] for values in (inputs, results))
    largest = 0.0
    for batch in (slice(1), slice(None)):
        found = run([np.ascontiguousarray(array[batch]) for array in arrays])
        for ours, whole in zip(found, expected, strict=True):
            theirs = whole[batch]
            if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
                raise ConfigError(
                    f"what was exported returns {ours.dtype}{list(ours.shape)} in place of "
                    f"{theirs.dtype}{list(theirs.shape)}: nothing is written."
                )
            if tolerance is not None:
                largest = max(largest, _difference(ours, theirs, tolerance))
            elif len(ours) > 1:
                _check_distribution(ours, theirs)
    return largest


def _difference(ours: Array, theirs: Array, tolerance: float) -> float:
    if ours.dtype.kind != "f":
        if wrong := int((ours != theirs).reshape(len(ours), -1).any(-1).sum()):
            raise ConfigError(
                f"what was exported acts differently for {wrong:,} of {len(ours):,} observations: "
                "nothing is written."
            )
        return 0.0
    difference = np.abs(ours - theirs)
    if not (difference <= tolerance * (1 + np.abs(theirs))).all():
        raise ConfigError(
            f"what was exported differs by up to {difference.max():.3g}, which is more than the "
            f"tolerance {tolerance:g}: nothing is written."
        )
    return float(difference.max(initial=0.0))


def _check_distribution(ours: Array, theirs: Array) -> None:
    """Compare samples of each column by the test of Kolmogorov and Smirnov, at 1e-6."""
    from scipy.stats import ks_2samp

    size = len(ours)
    allowed = math.sqrt(math.log(2 / 1e-6) / size)
    for one, other in zip(ours.reshape(size, -1).T, theirs.reshape(size, -1).T, strict=True):
        distance = ks_2samp(one, other, method="asymp").statistic
        if not distance <= allowed:
            raise ConfigError(
                f"what was exported samples from another distribution ({distance:.3f} apart, "
                f"{allowed:.3f} is allowed): nothing is written."
            )
