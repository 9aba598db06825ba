"""The registry of a trainer's hooks: adding, removing, ordering, naming, listing, calling them."""

from __future__ import annotations

import difflib
import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from tensordict import TensorDict, is_tensor_collection
from torch import nn

from ..base.words import did_you_mean, printable, snake_case
from ..errors import (
    ConfigError,
    DuplicateNameError,
    HookReturnError,
    HookSignatureError,
    UnknownHookPointError,
    add_note,
)
from .cadence import Every
from .hook_points import HOOK_POINTS, HookPoint
from .stateful import StatefulModule, has_state
from .timing import HOOK_PREFIX


class Registry:
    """The hooks of one trainer.

    Args:
        trainer: The trainer, a `hooktrainer.loop.loop.Loop`.

    Attributes:
        modules: The stateful objects by name.
        points: The dispatcher of each hook point.
        before_own_loss: Calls the hooks before the one that computes the losses itself, if any.
        computes_loss: Whether a hook does.
        changes: Number of changes so far.
    """

    def __init__(self, trainer: Any) -> None:
        self._bridge, self._trainer = trainer.bridge, trainer
        self._entries: list[Entry] = []  # in order of registration
        self.modules: dict[str, Any] = {}
        self.points: dict[str, Dispatcher] = {
            point: Dispatcher(point, trainer) for point in HOOK_POINTS
        }
        self.before_own_loss = Dispatcher(self.points["optimizer"].point, trainer)
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
        point, kwargs = point_named(dest, self._bridge.stages.values()), kwargs or {}
        if not callable(op):
            raise HookSignatureError(
                f"cannot register {op!r:.80} at {str(point)!r}: it is not callable. Write "
                "__call__, or register one of its methods."
            )
        if every is not None and not isinstance(every, Every):
            raise ConfigError(f"every={every!r}: pass a cadence such as Every(frames=10_000).")
        check_signature(point, op, kwargs)
        if point not in self.points:
            handles = self._bridge.place(point, op, kwargs, priority, every)
            return HookHandle(lambda: [handle.remove() for handle in handles])
        cadence = every.copy() if every else None  # one Every may serve several ops
        entry = Entry(point, self._bridge.op(point, op), kwargs, priority, cadence)
        if entry.computes_loss and self.computes_loss:
            raise ConfigError(
                f"{entry.own_name} computes the losses, as another hook at 'optimizer' does."
            )
        self._entries.append(entry)
        self._rebuild(entry.owner)
        return HookHandle(functools.partial(self.remove, entry))

    def remove(self, entry: Entry) -> None:
        """Remove ``entry``; does nothing if it is not registered."""
        self._entries = [each for each in self._entries if each is not entry]
        self._rebuild()

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
        self._bridge.module(name, module)
        self._rebuild(module)

    def remove_module(self, name: str) -> Any:
        """Remove the module ``name`` with its ops; see `Trainer.remove_hook`."""
        if name not in self.modules:
            hint = did_you_mean(name, self.modules, most=1)
            raise ConfigError(f"there is no hook {name!r}.{hint} There are: {list(self.modules)}.")
        module = self.modules[name]
        self.discard(module)
        return module

    def discard(self, hook: Any) -> None:
        """Remove a hook from all its points, and its names."""
        for name in [name for name, module in self.modules.items() if module is hook]:
            del self.modules[name]
        self._entries = [entry for entry in self._entries if entry.owner is not hook]
        self._rebuild()

    def entries(self) -> Iterator[Entry]:
        """Yield every op, by point in loop order, in run order."""
        for dispatcher in self.points.values():
            yield from dispatcher.entries

    def hooks(self) -> list[Any]:
        """Return every distinct module and owner of an op, in order of registration."""
        owners = (entry.owner for entry in self._entries)
        return list({id(hook): hook for hook in (*self.modules.values(), *owners)}.values())

    def part(self, thing: Any) -> Any:
        """Return the `Stateful` for a hook, the loss module or the collector."""
        part = self._bridge.part(thing)
        return StatefulModule(part) if isinstance(part, nn.Module) else part

    def named(self, exclude: tuple[Any, ...] = ()) -> dict[str, Any]:
        """Return every saved object by name, each once.

        These are registered modules, and owners of ops with a ``state_dict`` that are not
        registered. Hooks whose ``is_saved`` is false are left out.
        """
        names = {id(module): name for name, module in reversed(self.modules.items())}
        found: dict[str, Any] = {}
        for hook in self.hooks():
            name = names.get(id(hook))
            left_out = name is None and (
                inspect.isclass(hook) or any(hook is thing for thing in exclude)
            )
            is_saved = getattr(hook, "is_saved", True) is not False
            if is_saved and not left_out and has_state(self._bridge.part(hook)):
                taken = found | self.modules
                found[name or _unused(snake_case(type(hook).__name__), taken)] = hook
        return found

    def call_all(self, method: str, *args: Any) -> None:
        """Call a method such as ``on_train_start`` of every hook that has it."""
        adapters = [(e.op, e.owner) for e in self._entries if isinstance(e.op, Adapter)]
        for hook, owner in (*((hook, hook) for hook in self.hooks()), *adapters):
            call = getattr(hook, method, None)
            if not callable(call):
                continue
            try:
                with self._trainer.timing.phase(_phase_of(owner)):
                    call(*args)
            except Exception as error:
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
        names = {id(hook): name for name, hook in self.named().items()}
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
                    "saves": [str(key).lstrip("_") for key in state],
                }
            )
        return rows

    def _rebuild(self, added: Any = None) -> None:
        """Pass the trainer to a hook that stores it, name every op, and rebuild the dispatchers."""
        self.changes += 1
        if hasattr(type(added), "registered_with"):
            added.registered_with(self._trainer)
        names = {id(module): name for name, module in self.modules.items()}
        for entry in self._entries:
            base = names.get(id(entry.owner)) or snake_case(entry.own_name)
            entry.name = f"{base}.{entry.method}" if entry.method else base
        ordered = sorted(self._entries, key=lambda entry: -entry.priority)
        for point, dispatcher in self.points.items():
            dispatcher.entries = [entry for entry in ordered if entry.point == point]
            dispatcher.calls = tuple(
                (entry.call, entry.due, HOOK_PREFIX + entry.name, entry.phase)
                for entry in dispatcher.entries
            )
        optimizer = self.points["optimizer"]
        own = [place for place, entry in enumerate(optimizer.entries) if entry.computes_loss]
        self.computes_loss, first = bool(own), own[0] if own else 0
        self.before_own_loss.calls = optimizer.calls[:first]
        optimizer.calls = optimizer.calls[first:]


def point_named(name: str, further: Iterable[HookPoint] = ()) -> HookPoint:
    """Return the hook point of this name, of the ten and ``further`` ones.

    Raises:
        UnknownHookPointError: If there is none.
    """
    for point in (*HOOK_POINTS, *further):
        if point == name:
            return point
    raise UnknownHookPointError(
        f"{name!r} is not a hook point.{did_you_mean(str(name), HOOK_POINTS, most=1)} "
        f"The ten are: {', '.join(HOOK_POINTS)}."
    )


def _unused(name: str, taken: Any) -> str:
    names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    return next(each for each in names if each not in taken)


def check_signature(point: HookPoint, op: Callable[..., Any], kwargs: dict[str, Any]) -> None:
    """Refuse an op that cannot take the arguments of its point, or is a coroutine or generator."""
    name = getattr(op, "__qualname__", type(op).__name__)
    kinds = inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction
    if any(is_one(call) for is_one in kinds for call in (op, type(op).__call__)):
        raise HookSignatureError(
            f"hook {name} is a coroutine or a generator: calling it runs none of its lines."
        )
    try:
        signature = inspect.signature(op)
    except (TypeError, ValueError):  # of some builtins; a misfit raises at the first call
        return
    misfits: dict[HookPoint, str] = {}
    for each in (point, *HOOK_POINTS):
        try:
            signature.bind(*each.receives, **kwargs)
        except TypeError as error:
            misfits[each] = str(error)
        if point not in misfits:
            return
    extra = f" and {kwargs}" if kwargs else ""
    fits = [each for each in HOOK_POINTS if each not in misfits]
    near = difflib.get_close_matches(point, fits, n=1, cutoff=0.0)
    hint = f" The nearest point it fits is {near[0]!s}." if near else ""
    raise HookSignatureError(
        f"hook {name} takes {signature}, but {point} passes "
        f"({', '.join(point.receives)}){extra}: {misfits[point]}.{hint}"
    )


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

    remove: Callable[[], Any]


# -- `Dispatcher`, which calls the hooks of a point, and `Entry`, one op at one point.


@dataclass(eq=False)
class Dispatcher:
    """Calls the hooks of one point in order; this is the hot path.

    Attributes:
        entries: The ops in run order.
        calls: For each op its callable, its cadence, and the names of its timer and phase.
    """

    point: HookPoint
    trainer: Any
    entries: list[Entry] = field(default_factory=list)
    calls: tuple[tuple[Callable[..., Any], Every | None, str, str], ...] = ()

    def __call__(self, *args: Any) -> Any:
        """Call the hooks with the arguments of the point.

        Returns:
            The first argument; at a transform point, its last replacement.
        """
        trainer, point = self.trainer, self.point
        timing, progress, name = trainer.timing, trainer.progress, ""
        kind, is_step = point.kind, point.per_step
        try:
            for call, every, name, phase in self.calls:
                if every is not None and not every.due(progress):
                    continue
                start = perf_counter() if is_step else timing.begin(phase)
                try:
                    out = call(*args)
                finally:
                    if is_step:
                        timing.end_hook(name, start)
                    else:
                        timing.end(phase, start, name)
                if out is None or kind == "action":
                    continue
                if kind == "log" and isinstance(out, dict):
                    trainer.metrics.log(out)
                elif kind == "transform" and (
                    out.__class__ is TensorDict or is_tensor_collection(out)
                ):
                    args = (out, *args[1:])
                else:
                    bare, found = name.removeprefix(HOOK_PREFIX), printable(repr(out)[:80])
                    raise HookReturnError(
                        f"hook {bare!r} at hook point {point!s} returned {found} of type "
                        f"{type(out).__name__}; this {kind} point takes {point.returns}."
                    )
        except Exception as error:
            add_note(
                error,
                f"in hook {name.removeprefix(HOOK_PREFIX)!r} at hook point {point!s} "
                f"(frames {progress.frames}, optimizer step {progress.optim_steps})",
            )
            raise
        return args[0] if args else None


class Adapter:
    """Calls something else in place of an op, whose name and state it has."""

    def __init__(self, func: Callable[..., Any], call: Callable[..., Any]) -> None:
        self.func = func
        self.call = call

    def __call__(self, *args: Any) -> Any:
        """Make the call."""
        return self.call(*args)


class Entry:
    """One op at one hook point."""

    def __init__(
        self,
        point: HookPoint,
        op: Callable[..., Any],
        kwargs: dict[str, Any],
        priority: float,
        every: Every | None,
    ) -> None:
        inner: Any = op
        while isinstance(inner, (functools.partial, Adapter)):
            inner = inner.func
        self.point, self.priority, self.every = point, priority, every
        self.owner = getattr(inner, "__self__", inner)  # the object of a bound method
        self.computes_loss = point == "optimizer" and any(
            getattr(thing, "computes_loss", False) is True for thing in (op, self.owner)
        )
        method = getattr(inner, "__name__", "")
        self.method = method if self.owner is not inner and method != "__call__" else ""
        self.own_name = method if self.owner is inner and method else type(self.owner).__name__
        self.name = self.own_name
        self.phase = "optimize" if point.per_step else _phase_of(self.owner)
        self.op = functools.partial(op, **kwargs) if kwargs else op
        # A bound method is called faster than the object it belongs to.
        bound = getattr(self.op, "__call__", None)  # noqa: B004
        self.call: Callable[..., Any] = bound if inspect.ismethod(bound) else self.op
        self.due = every
        if self.computes_loss:
            self.call, self.due = functools.partial(_own_losses, self.op), None


def _phase_of(owner: Any) -> str:
    phase = getattr(owner, "phase", None)
    return phase if isinstance(phase, str) else "hooks"


def _own_losses(op: Callable[..., Any], *args: Any) -> Any:
    """Call an op that computes the losses, and check that it returns them."""
    losses = op(*args)
    if losses is None:
        raise HookReturnError(
            "a hook that computes the losses itself returned None: return the losses."
        )
    return losses
