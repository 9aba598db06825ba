"""The registry of a trainer's hooks: adding, removing, ordering, naming, listing."""

from __future__ import annotations

import difflib
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from ..base.words import snake_case
from ..errors import (
    ConfigError,
    DuplicateNameError,
    HookSignatureError,
    UnknownHookPointError,
    add_note,
)
from .cadence import Every, Progress
from .dispatch import Adapter, Dispatcher, Entry, owner_of, phase_of
from .hook_points import HOOK_POINTS, HookPoint
from .metrics import Metrics
from .stateful import as_stateful, has_state
from .timing import Timing


class Registry:
    """The hooks of one trainer.

    Args:
        trainer: The trainer.
        progress: Its counters.
        metrics: Its metrics.
        timing: Its times.
        bridge: Adapts what was written for another trainer, as a
            `hooktrainer.torchrl.hook_bridge.TorchRLBridge`.
    """

    def __init__(
        self,
        trainer: object,
        progress: Progress,
        metrics: Metrics,
        timing: Timing,
        bridge: Any,
    ) -> None:
        self._bridge = bridge
        self._run_ops: list[tuple[int, Adapter]] = []
        self._trainer = trainer
        self._progress = progress
        self._timing = timing
        self._serial = 0
        self.modules: dict[str, Any] = {}
        self.points: dict[str, Dispatcher] = {
            point: Dispatcher(point, progress, metrics, timing) for point in HOOK_POINTS
        }
        # The hooks before the one that computes the losses itself, if any: they check losses.
        self.before_own_loss = Dispatcher(self.points["optimizer"].point, progress, metrics, timing)
        self.computes_loss = False
        self.changes = 0

    def add(
        self,
        dest: str,
        op: Callable[..., Any],
        *,
        priority: float = 0,
        every: Every | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> HookHandle:
        """Register ``op`` at hook point ``dest``; see `Trainer.register_op`."""
        point = find_point(dest, self._bridge.stages)
        if not callable(op):
            raise HookSignatureError(
                f"cannot register {op!r:.80} at {point!r}: it is not callable."
            )
        if every is not None and not isinstance(every, Every):
            raise ConfigError(f"every={every!r}: pass a cadence such as Every(frames=10_000).")
        check_signature(point, op, kwargs or {})
        if point not in self.points:
            handles = self._bridge.place(point, op, kwargs or {}, priority, every)
            return HookHandle(functools.partial(_remove_all, handles))
        cadence = every.copy() if every else None  # one Every may serve several ops
        op = self._bridge.op(point, op)
        entry = Entry(point, op, kwargs or {}, priority, cadence, self._serial)
        if entry.computes_loss and self.computes_loss:
            raise ConfigError(
                f"{entry.own_name} computes the losses, as another hook at 'optimizer' does."
            )
        self._serial += 1
        self.points[point].add(entry)
        self._set_trainer(entry.owner)
        self._rename()
        return HookHandle(functools.partial(self.remove, entry))

    def add_run_op(self, op: Adapter) -> HookHandle:
        """Add an op called at the start or end of the run through a method of its own."""
        added = (self._serial, op)
        self._serial += 1
        self._run_ops.append(added)
        return HookHandle(lambda: self._run_ops.remove(added) if added in self._run_ops else None)

    def remove(self, entry: Entry) -> None:
        """Remove ``entry``; does nothing if it is not registered."""
        self.points[entry.point].remove(entry)
        self._rename()

    def add_module(self, name: str, module: Any) -> None:
        """Name a stateful object; see `Trainer.register_module`."""
        if isinstance(module, str):  # also understood in the other order
            name, module = module, name
        if not isinstance(name, str) or not name:
            raise ConfigError(f"register_module: the name {name!r} is not a non-empty string.")
        if name in self.modules:
            raise DuplicateNameError(
                f"{name!r} is already the name of a {type(self.modules[name]).__name__}: pass "
                f"another, hook.register(trainer, name={_unused(name, self.modules)!r})."
            )
        self.modules[name] = module
        self._set_trainer(module)
        self._bridge.module(name, module)
        self._rename()

    def remove_module(self, name: str) -> Any:
        """Remove the module ``name`` with its ops; see `Trainer.remove_hook`."""
        if name not in self.modules:
            near = difflib.get_close_matches(name, self.modules, n=1, cutoff=0.0)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"there is no hook {name!r}.{hint} There are: {list(self.modules)}.")
        module = self.modules.pop(name)
        for entry in [entry for entry in self.entries() if entry.owner is module]:
            self.points[entry.point].remove(entry)
        self._run_ops = [added for added in self._run_ops if owner_of(added[1]) is not module]
        self._rename()
        return module

    def entries(self) -> Iterator[Entry]:
        """Yield every op, by point in loop order, in run order."""
        for dispatcher in self.points.values():
            yield from dispatcher.entries

    def stateful(self, exclude: tuple[Any, ...] = ()) -> dict[str, Any]:
        """Return every saved object by name, each once.

        These are registered modules, and owners of ops with a ``state_dict`` that are not
        registered. Hooks whose ``is_saved`` is false are left out.
        """
        named = self._named({id(thing) for thing in exclude})
        return {name: self.part(owner) for name, owner in named.items()}

    def part(self, thing: Any) -> Any:
        """Return the `Stateful` for a hook, the loss module or the collector."""
        return as_stateful(self._bridge.part(thing))

    def _named(self, exclude: Set[int] = frozenset()) -> dict[str, Any]:
        """Return the saved modules and owners of ops by name, each once."""
        once = {id(m): n for n, m in reversed(self.modules.items())}  # the first name, if several
        modules = {n: self.modules[n] for n in reversed(once.values())}
        found = {name: module for name, module in modules.items() if self._is_saved(module)}
        seen = exclude | once.keys()
        for owner in self._owners():
            if id(owner) not in seen and self._is_saved(owner) and not inspect.isclass(owner):
                seen.add(id(owner))
                found[_unused(snake_case(type(owner).__name__), found | self.modules)] = owner
        return found

    def _owners(self) -> list[Any]:
        """Return the owner of every op, in order of registration."""
        owners = [(entry.serial, entry.owner) for entry in self.entries()]
        owners += [(serial, owner_of(op)) for serial, op in self._run_ops]
        return [owner for _, owner in sorted(owners, key=lambda item: item[0])]

    def _is_saved(self, hook: Any) -> bool:
        """Return whether checkpoints include the state of ``hook``."""
        return getattr(hook, "is_saved", True) is not False and has_state(self._bridge.part(hook))

    def hooks(self) -> list[Any]:
        """Return every distinct module and owner of an op, in order of registration."""
        return list({id(h): h for h in (*self.modules.values(), *self._owners())}.values())

    def call_all(self, method: str, *args: Any) -> None:
        """Call a method such as ``on_train_start`` of every hook that has it."""
        for hook in (*self.hooks(), *(op for _, op in self._run_ops)):
            call = getattr(hook, method, None)
            if not callable(call):
                continue
            try:
                with self._timing.phase(phase_of(hook)):
                    call(*args)
            except Exception as error:
                owner = owner_of(hook)
                name = next((n for n, m in self.modules.items() if m is owner), None)
                add_note(error, f"in {method} of hook {name or type(owner).__name__!r}")
                raise

    def cadences(self) -> dict[str, Every]:
        """Return the cadence of every op that has one, by a unique key."""
        found: dict[str, Every] = {}
        for entry in self.entries():
            if entry.every is not None:
                found[_unused(f"{entry.point}/{entry.name}", found)] = entry.every
        return found

    def table(self) -> list[dict[str, Any]]:
        """Return every op in run order as plain values, for `draw_hooks`."""
        names = {id(owner): name for name, owner in self._named().items()}
        rows = []
        for entry in self.entries():
            name = names.get(id(entry.owner))
            state = {} if name is None else self._bridge.part(entry.owner).state_dict()
            rows.append(
                {
                    "point": str(entry.point),
                    "kind": str(entry.point.kind),
                    "hook": entry.name,
                    "when": repr(entry.every) if entry.every else "always",
                    "priority": entry.priority,
                    "module": name,
                    "saves": [str(key) for key in state],
                }
            )
        return rows

    def _set_trainer(self, hook: Any) -> None:
        """Pass the trainer to a hook that stores it."""
        if hasattr(type(hook), "registered_with"):
            hook.registered_with(self._trainer)

    def _rename(self) -> None:
        """Name every op after its module, and rebuild the dispatchers."""
        self.changes += 1
        names = {id(module): name for name, module in self.modules.items()}
        for entry in self.entries():
            base = names.get(id(entry.owner)) or snake_case(entry.own_name)
            entry.name = f"{base}.{entry.method}" if entry.method else base
        optimizer = self.points["optimizer"]
        own = [place for place, entry in enumerate(optimizer.entries) if entry.computes_loss]
        self.computes_loss = bool(own)
        optimizer.first = own[0] if own else 0
        self.before_own_loss.entries = optimizer.entries[: optimizer.first]
        for dispatcher in (*self.points.values(), self.before_own_loss):
            dispatcher.compile()


def _remove_all(handles: list[HookHandle]) -> None:
    for handle in handles:
        handle.remove()


def _unused(name: str, taken: Any) -> str:
    names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    return next(each for each in names if each not in taken)


def find_point(dest: str, stages: Mapping[str, HookPoint]) -> HookPoint:
    """Return the hook point, or the stage of another trainer, named ``dest``.

    Raises:
        UnknownHookPointError: If there is none; names the nearest.
    """
    for point in (*HOOK_POINTS, *stages.values()):
        if point == dest:
            return point
    near = difflib.get_close_matches(str(dest), HOOK_POINTS, n=1, cutoff=0.0)
    hint = f"Did you mean {near[0]!s}?" if near else ""
    raise UnknownHookPointError(
        f"{dest!r} is not a hook point. {hint} The ten are: {', '.join(HOOK_POINTS)}."
    )


def check_signature(point: HookPoint, op: Callable[..., Any], kwargs: dict[str, Any]) -> None:
    """Refuse an op that cannot take the arguments of its point, or is a coroutine or generator."""
    name = getattr(op, "__qualname__", type(op).__name__)
    inner = op
    while isinstance(inner, functools.partial):
        inner = inner.func
    flags = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    codes = [getattr(call, "__code__", None) for call in (inner, type(inner).__call__)]
    if any(code is not None and code.co_flags & flags for code in codes):
        raise HookSignatureError(
            f"hook {name} is a coroutine or a generator: calling it runs none of its lines."
        )
    try:
        signature = inspect.signature(op)
    except (TypeError, ValueError):  # of some builtins; their first call will tell
        return
    if misfit := _misfit(signature, point, kwargs):
        extra = f" and {kwargs}" if kwargs else ""
        fits = [p for p in HOOK_POINTS if not _misfit(signature, p, kwargs)]
        near = difflib.get_close_matches(point, fits, n=1, cutoff=0.0)
        hint = f" The nearest point it fits is {near[0]!s}." if near else ""
        raise HookSignatureError(
            f"hook {name} takes {signature}, but {point} passes "
            f"({', '.join(point.receives)}){extra}: {misfit}.{hint}"
        )


def _misfit(signature: inspect.Signature, point: HookPoint, kwargs: dict[str, Any]) -> str:
    """Return why a signature cannot take the arguments of a point; empty if it can."""
    try:
        signature.bind(*point.receives, **kwargs)
    except TypeError as error:
        return str(error)
    return ""


def draw_hooks(table: Sequence[Mapping[str, Any]]) -> str:
    """Format the result of `Registry.table` as lines, by point."""
    rows = [("hook", "when", "priority", "saves")]
    for entry in table:
        saves = f"{entry['module']}: {', '.join(entry['saves'])}" if entry["saves"] else "-"
        rows.append((entry["hook"], entry["when"], f"{entry['priority']:g}", saves))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"  {'  '.join(map(str.ljust, row, widths))}".rstrip() for row in rows]
    drawn = lines[:1]
    for point in HOOK_POINTS:
        drawn.append(f"{point} ({point.kind})")
        here = [line for line, e in zip(lines[1:], table, strict=True) if e["point"] == point]
        drawn += here or ["  -"]
    return "\n".join(drawn)


@dataclass(frozen=True)
class HookHandle:
    """The handle of a registered op.

    Attributes:
        remove: Removes the op from its hook point; a second call does nothing.
    """

    remove: Callable[[], None]
