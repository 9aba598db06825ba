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
    """A hook point: its name, the arguments of its hooks and their result.

    Attributes:
        kind: How results are used; see the module.
        receives: Names of the arguments.
        returns: What hooks return, for messages and docs.
        use: Typical uses.
        per_step: Whether it is called at every optimizer step.
    """

    __slots__ = ("kind", "per_step", "receives", "returns", "use")

    kind: Kind
    receives: tuple[str, ...]
    returns: str
    use: str
    per_step: bool

    def __new__(
        cls,
        name: str,
        kind: Kind = "action",  # pickle passes the name alone
        receives: tuple[str, ...] = (),
        use: str = "",
        *,
        per_step: bool = False,
    ) -> HookPoint:
        """Create one row of the table."""
        point = super().__new__(cls, name)
        point.kind, point.receives, point.use, point.per_step = kind, receives, use, per_step
        point.returns = _RETURNS[kind]
        if name == "process_optim_batch":
            point.returns += "; StopIteration ends the epoch"
        return point


_RETURNS: dict[Kind, str] = {
    "transform": "a TensorDict, or None (unchanged)",
    "log": "a dict of metrics, or None",
    "action": "nothing",
}
_BATCH, _SUB_BATCH = ("batch",), ("sub_batch",)
_LOSSES = ("losses", "clip_grad_norm", "clip_norm", "index")
_ADVANTAGES = "extend a replay buffer, advantages, reward statistics, key selection, masking"
_SAMPLE = "sample a replay buffer, sub-sample, normalize rewards"
_OPTIMIZER = "one optimizer over all or some loss components"

HOOK_POINTS: tuple[HookPoint, ...] = (
    HookPoint("batch_process", "transform", _BATCH, _ADVANTAGES),
    HookPoint("pre_steps_log", "log", _BATCH, "training reward, frame count"),
    HookPoint("pre_optim_steps", "action", (), "clear the CUDA cache"),
    HookPoint("process_optim_batch", "transform", _BATCH, _SAMPLE, per_step=True),
    HookPoint("post_loss", "transform", _SUB_BATCH, "update priorities", per_step=True),
    HookPoint("optimizer", "transform", _LOSSES, _OPTIMIZER, per_step=True),
    HookPoint("post_optim", "action", (), "target-network update, scheduler", per_step=True),
    HookPoint("post_optim_log", "log", _SUB_BATCH, "per-step diagnostics", per_step=True),
    HookPoint("post_steps", "action", (), "push weights to the collectors"),
    HookPoint("post_steps_log", "log", _BATCH, "evaluation"),
)
"""The ten hook points, in loop order."""
