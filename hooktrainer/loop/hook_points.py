"""The ten hook points of the training loop: one table that everything else reads.

The loop, with every point where it is called::

    for batch in collector:                                  # collect
        batch = batch_process(batch)                         # transform
        pre_steps_log(batch)                                 # log
        pre_optim_steps()                                    # action
        for _ in range(num_epochs):
            for j in range(optim_steps_per_batch):           # optimize
                sub_batch = process_optim_batch(batch)       # transform; StopIteration ends it
                losses    = loss_module(sub_batch)
                sub_batch = post_loss(sub_batch)             # transform
                losses    = optimizer(losses, clip_grad_norm, clip_norm, j)  # transform
                post_optim()                                 # action
                post_optim_log(sub_batch)                    # log
        post_steps()                                         # action
        post_steps_log(batch)                                # log

There are three kinds of point. A *transform* receives a TensorDict and returns its replacement, or
``None`` to leave it unchanged. A *log* receives a TensorDict and returns a dict of metrics, or
``None``. An *action* receives nothing and its return value is ignored. A hook at
``process_optim_batch`` ends the epoch by raising ``StopIteration``, as in TorchRL.
"""

from __future__ import annotations

from typing import Literal

Kind = Literal["transform", "log", "action"]
HookPointName = Literal[
    "batch_process",
    "pre_steps_log",
    "pre_optim_steps",
    "process_optim_batch",
    "post_loss",
    "optimizer",
    "post_optim",
    "post_optim_log",
    "post_steps",
    "post_steps_log",
]
"""The names of the ten points, for type checkers."""


class HookPoint(str):
    """A hook point: its name, the arguments of its hooks and their result."""

    __slots__ = ("kind", "per_step", "receives", "returns", "use")

    kind: Kind
    receives: tuple[str, ...]
    returns: str
    use: str
    per_step: bool

    def __new__(
        cls,
        name: str,
        kind: Kind,
        receives: tuple[str, ...],
        returns: str,
        use: str,
        *,
        per_step: bool = False,
    ) -> HookPoint:
        """Create one row of the table."""
        point = super().__new__(cls, name)
        point.kind = kind
        point.receives = receives
        point.returns = returns
        point.use = use
        point.per_step = per_step
        return point

    @property
    def call(self) -> str:
        """The call of the loop, for messages and docs: ``optimizer(losses, …)``."""
        return f"{self}({', '.join(self.receives)})"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as a lookup in the table, which holds the only instance of each point."""
        return (_point_named, (str(self),))


_CHANGED = "a TensorDict, or None (unchanged)"
_METRICS = "a dict of metrics, or None"

HOOK_POINTS: tuple[HookPoint, ...] = (
    HookPoint(
        "batch_process",
        "transform",
        ("batch",),
        _CHANGED,
        "extend a replay buffer, advantages, reward statistics, key selection, masking",
    ),
    HookPoint("pre_steps_log", "log", ("batch",), _METRICS, "training reward, frame count"),
    HookPoint("pre_optim_steps", "action", (), "nothing", "clear the CUDA cache"),
    HookPoint(
        "process_optim_batch",
        "transform",
        ("batch",),
        f"{_CHANGED}; StopIteration ends the epoch",
        "sample a replay buffer, sub-sample, normalize rewards",
        per_step=True,
    ),
    HookPoint(
        "post_loss", "transform", ("sub_batch",), _CHANGED, "update priorities", per_step=True
    ),
    HookPoint(
        "optimizer",
        "transform",
        ("losses", "clip_grad_norm", "clip_norm", "index"),
        _CHANGED,
        "one optimizer over all or some loss components",
        per_step=True,
    ),
    HookPoint(
        "post_optim", "action", (), "nothing", "target-network update, scheduler", per_step=True
    ),
    HookPoint(
        "post_optim_log", "log", ("sub_batch",), _METRICS, "per-step diagnostics", per_step=True
    ),
    HookPoint("post_steps", "action", (), "nothing", "push weights to the collectors"),
    HookPoint("post_steps_log", "log", ("batch",), _METRICS, "evaluation"),
)
"""The ten hook points, in loop order."""


def _point_named(name: str) -> HookPoint:
    return next(point for point in HOOK_POINTS if point == name)
