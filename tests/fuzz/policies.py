"""The target of saved policies: their facts, their tensors, and the operators that they call."""

from __future__ import annotations

import copy
import io
import json
import math
import random
import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast
from zipfile import ZipFile

import numpy as np
import torch
import xxhash
from harness import Files, Target, read, spoil_place
from mutate import NUMBERS, TEXTS, mutate_bytes, mutate_tree

from hooktrainer.base.untrusted import decode_data
from hooktrainer.errors import CheckpointError, ConfigError
from hooktrainer.loop import Progress
from hooktrainer.networks import AgentsPolicy, CategoricalPolicy, mlp
from hooktrainer.policies import Evaluation, PolicyRecorder, load_policy
from hooktrainer.policies.actions import Action
from hooktrainer.policies.calls import ALLOWED, DTYPES, RANDOM, operator_named
from hooktrainer.policies.packed import write_packed
from hooktrainer.store.stored import seal

FACTS, WEIGHTS, SEAL = "policy.json", "policy.safetensors", "policy"
PACKED_POLICY = "policy.hook"

Tree = dict[str, Any]


def _policy() -> Files:
    torch.manual_seed(0)
    return _saved(CategoricalPolicy(mlp(4, 2, (8,))), "CartPole-v1")


def _policy_of_agents() -> Files:
    torch.manual_seed(0)
    tag = {
        name: CategoricalPolicy(mlp(width, 5, (8,)), in_keys=[(name, "observation")])
        for name, width in (("adversary", 16), ("agent", 14))
    }
    return _saved(AgentsPolicy(tag), "pettingzoo/mpe/simple_tag_v3")


def _saved(policy: Any, env: str) -> Files:
    with tempfile.TemporaryDirectory() as place:
        recorder = PolicyRecorder(Path(place), policy, env)
        recorder.save(Progress(frames=10, optim_steps=1, seconds=1.5))
        files = read(Path(place) / "step_000000000010")
    facts = json.loads(files[FACTS])[SEAL]  # type: ignore[arg-type]
    facts |= {"time": 1.0, "versions": {"torch": "2"}, "run_id": "0" * 16}
    files[FACTS] = seal(SEAL, facts)
    return files


def _packed() -> Files:
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / PACKED_POLICY
        write_packed(file, {name: cast(bytes, data) for name, data in _policy().items()})
        return {PACKED_POLICY: file.read_bytes()}


def _spoil_packed(files: Files, rng: random.Random) -> None:
    """Change bytes, or what is packed, or the archive around it."""
    data = files[PACKED_POLICY]
    assert isinstance(data, bytes)
    if rng.random() < 0.3:
        files[PACKED_POLICY] = mutate_bytes(data, rng)
        return
    with ZipFile(io.BytesIO(data)) as archive:
        inside: Files = {name: archive.read(name) for name in (FACTS, WEIGHTS)}
    _spoil(inside, rng)
    kept = {name: data for name, data in inside.items() if isinstance(data, bytes)}
    if rng.random() < 0.3:
        kept[rng.choice(("../x", "/x", "a/b", "README.md", "x" * 300))] = b"x"
    with tempfile.TemporaryDirectory() as place:
        write_packed(file := Path(place) / PACKED_POLICY, kept)
        files[PACKED_POLICY] = file.read_bytes()


def _open_packed(place: Path) -> Any:
    return _open(place / PACKED_POLICY)


def _spoil(files: Files, rng: random.Random) -> None:
    """Change something, and recompute the size and the hashes, so that the rest is reached."""
    kind = rng.randrange(20)
    weights, facts = files[WEIGHTS], files[FACTS]
    assert isinstance(weights, bytes)
    assert isinstance(facts, bytes)
    if kind == 0:
        spoil_place(files, rng)
    elif kind == 1:
        files[FACTS] = mutate_bytes(facts, rng)
    else:
        known = json.loads(facts)[SEAL]
        if kind < 16:
            files[WEIGHTS] = weights = _spoil_weights(weights, rng)
        if kind >= 14:
            part = rng.choice(("interface", "env", "evaluation", None, None))
            if part is not None and isinstance(known.get(part), dict):
                known[part] = mutate_tree(known[part], rng)
            else:
                known = mutate_tree(known, rng)
        if isinstance(known, dict) and rng.random() < 0.98:
            digest = xxhash.xxh3_128_hexdigest(weights)
            known["files"] = {WEIGHTS: {"size": len(weights), "xxh3_128": digest}}
        if isinstance(known, dict):
            files[FACTS] = seal(SEAL, known)


def _spoil_weights(data: bytes, rng: random.Random) -> bytes:
    length = int.from_bytes(data[:8], "little")
    header, content = json.loads(data[8 : 8 + length]), data[8 + length :]
    kind = rng.randrange(12)
    if kind == 0:
        return mutate_bytes(data, rng)
    if kind == 1:
        place = rng.randrange(len(content) - 4)
        content = content[:place] + rng.randbytes(4) + content[place + 4 :]
    elif kind == 2:
        header = mutate_tree(header, rng)
    elif kind == 3:
        _other_tensor(header, rng)
    else:
        program = json.loads(header["__metadata__"]["program"])
        sampling = program["sampling"]
        if rng.random() < 0.5:
            program["sampling"] = spoil_program(sampling, rng)
        else:
            program = spoil_program(program, rng)
        header["__metadata__"]["program"] = json.dumps(program)
    coded = json.dumps(header).encode()
    coded += b" " * (-len(coded) % 8)
    return len(coded).to_bytes(8, "little") + coded + content


def _other_tensor(header: Tree, rng: random.Random) -> None:
    """The same bytes as a tensor of another shape, another type, or of the bytes beside it."""
    entry = header[rng.choice([name for name in header if name != "__metadata__"])]
    nbytes = entry["data_offsets"][1] - entry["data_offsets"][0]
    kind, size = rng.choice((("F32", 4), ("I8", 1), ("BOOL", 1), ("F16", 2), ("F8_E4M3", 1)))
    factor = rng.choice([n for n in (1, 2, 4, 8) if nbytes % (n * size) == 0] or [1])
    shape = [factor, nbytes // (factor * size)]
    entry.update(dtype=kind, shape=rng.choice((shape, shape[::-1], [0, 1 << 40], [1 << 62, 4, 0])))
    if rng.random() < 0.1:
        entry["data_offsets"] = [0, rng.choice((nbytes, 4, 1 << 40))]


def spoil_program(program: Tree, rng: random.Random) -> Any:
    """A program with other calls: of any operator, with any arguments."""
    program = copy.deepcopy(program)
    for _ in range(rng.choice((1, 1, 2, 4))):
        steps = program["steps"]
        kind = rng.randrange(8)
        if kind == 0:
            return mutate_tree(program, rng)
        if kind == 1:
            if rng.random() < 0.5:
                rng.choice(steps)[1] = _operator(rng)
            else:
                steps.insert(0, [f"large{len(steps)}", *_large(program["inputs"][0], rng)])
        elif kind == 2:
            step = rng.choice(steps)
            step[2] = mutate_tree(step[2], rng)
        elif kind == 3:
            step = rng.choice(steps)
            step[1:] = _call(step[1], _names(program), rng)
        else:  # one more call, whose result may take the place of another value
            place = rng.randrange(len(steps) + 1)
            names = _names({**program, "steps": steps[:place]})
            new, old = f"new{len(steps)}", rng.choice(names)
            if rng.random() < 0.3:
                later = json.dumps([steps[place:], program["outputs"]])
                later = later.replace(f'"%{old}"', f'"%{new}"')
                steps[place:], program["outputs"] = json.loads(later)
            steps.insert(place, [new, *_call(_operator(rng), names, rng)])
    return program


def _names(program: Tree) -> list[str]:
    """What may be an argument, as far as it is known: inputs, tensors and results."""
    used = re.findall(r'"%([^"]+\.[^"]+)"', json.dumps(program))  # tensors have a dot in the name
    return [*program["inputs"], *used, *(step[0] for step in program["steps"])]


def _overloads() -> Iterator[str]:
    for name in sorted(ALLOWED | RANDOM):
        for overload in getattr(torch.ops.aten, name).overloads():
            with suppress(CheckpointError):
                operator_named(f"aten.{name}.{overload}", random=True)
                yield f"aten.{name}.{overload}"


_OVERLOADS = list(_overloads())
_OTHERS = (
    *("aten._sparse_coo_tensor_unsafe.default", "aten.to_dense.default", "aten.set_.default"),
    *("aten.as_strided.default", "aten.empty.memory_format", "aten.from_file.default"),
    *("aten.resize_.default", "aten.view.dtype", "prims.view_of.default", "aten.__class__.x"),
    *("aten.rand.default", "aten.nonzero.default", "os.system.default", "getitem"),
)


def _large(name: str, rng: random.Random) -> list[Any]:
    """A call that takes much memory for a few numbers."""
    size = 1 << rng.choice((20, 26, 30, 33, 40, 62))
    calls: tuple[list[Any], ...] = (
        ["aten.full.default", [[size], 1.0], {}],
        ["aten.ones.default", [[size >> 10, 1 << 10]], {}],
        ["aten.arange.default", [size], {}],
        ["aten.eye.default", [size >> 10], {}],
        ["aten.repeat.default", [f"%{name}", [1, size]], {}],
        ["aten.constant_pad_nd.default", [f"%{name}", [0, size]], {}],
        ["aten.expand.default", ["%" + name, [size, 1, 4]], {}],
    )
    return rng.choice(calls)


def _operator(rng: random.Random) -> str:
    return rng.choice(_OTHERS) if rng.random() < 0.05 else rng.choice(_OVERLOADS)


def _call(target: Any, names: list[str], rng: random.Random) -> list[Any]:
    """The operator and arguments of the types that it takes."""
    if target == "getitem":
        return [target, [f"%{rng.choice(names)}", _whole(rng)], {}]
    try:
        _, name, overload = target.split(".")
        schema = getattr(getattr(torch.ops.aten, name), overload)._schema
    except (AttributeError, ValueError, RuntimeError):
        return [target, [f"%{rng.choice(names)}"], {}]
    args: list[Any] = []
    kwargs: Tree = {}
    for argument in schema.arguments:
        given = _argument(str(argument.real_type), names, rng)
        if argument.kwarg_only:
            if rng.random() < 0.3:
                kwargs[argument.name] = given
        elif argument.has_default_value() and rng.random() < 0.5:
            break
        else:
            args.append(given)
    return [target, args, kwargs]


def _argument(kind: str, names: list[str], rng: random.Random) -> Any:
    if rng.random() < 0.02:
        return rng.choice((*TEXTS, None, {"device": "cuda"}, {"layout": "sparse_coo"}, [], {}))
    if kind.startswith("Optional["):
        return None if rng.random() < 0.5 else _argument(kind[9:-1], names, rng)
    if kind.startswith("List["):
        count = rng.choice((0, 1, 1, 2, 2, 3, 4, 6))
        return [_argument(kind[5:-1], names, rng) for _ in range(count)]
    if kind == "Tensor":
        return f"%{rng.choice(names)}"
    if kind in ("int", "SymInt"):
        return {"batch": rng.choice((1, 2, 8))} if rng.random() < 0.1 else _whole(rng)
    if kind in ("float", "number"):
        number = rng.choice((0.5, 1.0, -1.0, 2.0, 0.0, *NUMBERS))
        return number if math.isfinite(number) else {"float": str(number)}
    if kind == "bool":
        return rng.random() < 0.5
    special = {
        "ScalarType": {"dtype": rng.choice(sorted(DTYPES))},
        "Layout": {"layout": "strided"},
        "MemoryFormat": {"memory_format": rng.choice(("contiguous_format", "channels_last"))},
        "Device": {"device": "cpu"},
        "str": {"text": rng.choice(("none", "tanh", "mean", "sum", "reflect", "amax", "x"))},
    }
    return special.get(kind)


def _whole(rng: random.Random) -> Any:
    if rng.random() < 0.85:
        return rng.choice((0, 0, 1, 1, 2, 3, 4, 8, -1, -2, 16, 100, 1000))
    return rng.choice([number for number in NUMBERS if isinstance(number, int)])


def _whole_observation(interface: Any) -> Any:
    """An observation of a single environment, by agent where there are several; or ``None``."""
    if not interface.agents:
        return _observation(interface.inputs)
    seen: Tree = {}
    for group in interface.groups:
        own = _observation([one for one in interface.inputs if one.group == group.name])
        if own is None or len(group.agents) > 99:
            return None
        seen |= dict.fromkeys(group.agents, own)
    return seen


def _observation(parts: Any) -> Any:
    if sum(math.prod(part.shape) for part in parts) >= 1 << 16:
        return None
    whole: Any = {}
    for part in parts:
        inner = whole
        for key in part.path[:-1]:
            inner = inner.setdefault(key, {})
        array = np.linspace(-1, 1, math.prod(part.shape)).reshape(part.shape)
        if part.path:
            inner[part.path[-1]] = array
        else:
            whole = array
    return whole


def _plain(actions: Any) -> Any:
    if isinstance(actions, dict):
        return {name: np.asarray(action) for name, action in actions.items()}
    return np.asarray(actions)


def _open(place: Path) -> Any:
    """Load it and let it act; its environment is made without trust."""
    policy = load_policy(place)
    found: list[Any] = [policy.frames, policy.saved.environment.name]
    whole = _whole_observation(policy.interface)
    if whole is not None:
        found.append(_plain(policy(whole)))
        with suppress(ConfigError):  # it may say that it cannot
            drawing = load_policy(place, deterministic=False, seed=0)
            found.append(_plain(drawing(whole)))
    policy.make_env().close()
    return found


def targets() -> list[Target]:
    """The targets here."""
    for kind in (Action, Evaluation):  # their annotations are evaluated once, before any case
        with suppress(TypeError):
            decode_data(cast("type[object]", kind), {})
    errors = (ConfigError, CheckpointError)
    return [
        Target("policy", _policy, _spoil, _open, errors, memory=5 << 28),
        Target("packed policy", _packed, _spoil_packed, _open_packed, errors, memory=5 << 28),
        Target("policies of agents", _policy_of_agents, _spoil, _open, errors, memory=5 << 28),
    ]
