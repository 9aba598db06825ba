"""Hooks at ``optimizer``: `OptimizerHook` takes a step; `NanGuard` checks the losses before it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import nn

from ..base.checks import check_count
from ..base.tensordicts import count_valid, laid_out_as, sharded_as, total_loss
from ..errors import ConfigError, HookError, NonFiniteError, SkipOptimStep, StateMismatchError
from ..loop.cadence import Every
from ..loop.finite import FiniteChecks
from ..loop.hook import AFTER, EARLY, TrainerHookBase
from ..loop.loop import Loop
from ..loop.metrics import Metrics, Samples


@dataclass
class GraphResult:
    """The part of an optimizer step that a compiled graph has done.

    Attributes:
        takes_step: Whether the graph takes the step itself.
        norm: Norm of the gradient, if the graph takes the step.
        grads: Parameters and their gradients, if it does not.
    """

    takes_step: bool
    norm: torch.Tensor | None = None
    grads: tuple[Sequence[nn.Parameter], Sequence[torch.Tensor]] = ((), ())


@dataclass(eq=False, repr=False)
class OptimizerHook(TrainerHookBase):
    """Minimizes the sum of loss components with one optimizer.

    Logs the gradient's total norm before clipping as ``train/grad_norm``, or
    ``train/grad_norm_<name>`` under another name.

    A NaN or infinite norm raises before the step. On an accelerator this and all later steps are
    skipped instead, and the error is raised at the end of the log window or before a save; see
    `hooktrainer.loop.finite.FiniteChecks`. An optimizer that cannot skip a step (`FlatAdam` and
    torch's with ``fused=True`` can) synchronizes at every step.

    With ``accumulate=k`` it takes one step for k sub-batches. Each loss counts by the number of
    samples of its sub-batch: if losses are means over samples, the gradient is that of their mean
    over all k sub-batches, also of unequal size. For losses that are sums, divide by a constant in
    the loss module. Only at such steps are gradients clipped, steps counted, and the later hooks
    of the inner loop called. Accumulation goes on over batches and epochs, and in a resumed run;
    gradients that are left at the end of the run are not used.

    An optimizer whose ``step`` requires a closure, such as `torch.optim.LBFGS`, computes the
    losses of the sub-batch as often as it needs; the first ones are logged.

    Args:
        optimizer: The optimizer.
        loss_components: Keys of the losses to minimize; ``None`` for all that begin with
            ``"loss"``. Gradients of components reach only this optimizer's parameters.
        every: When to take a step, such as every second one for TD3's actor; by default always. In
            between, its losses are not differentiated and may be missing.
        accumulate: Sub-batches whose gradients are averaged for one step; the same for all
            optimizers of a trainer.

    Attributes:
        graph: What a compiled graph has done of each step; ``None`` for nothing.
        retain_graph: Whether other losses may share a part of autograd's graph with these.
        scaler: Scales the losses, and skips a step whose gradient overflows.
        gradient_hooks: Functions of the optimizer, called in order before gradients are clipped.
        average_over_ranks: As for `hooktrainer.hooks.averaging.AveragingHook`.

    Raises:
        ConfigError: If ``loss_components`` is empty or a string, or ``accumulate`` goes with
            ``every`` or with an optimizer that takes a closure.
    """

    needs_parameters = True
    leaves_out_steps = True  # after the first value that is not finite

    optimizer: torch.optim.Optimizer
    loss_components: Sequence[str] | None = None
    _: KW_ONLY
    every: Every | None = None
    accumulate: int = 1

    def __post_init__(self) -> None:
        if self.loss_components is not None and (
            isinstance(self.loss_components, str) or not self.loss_components
        ):
            raise ConfigError(
                f"OptimizerHook(loss_components={self.loss_components!r}): pass a list, or None."
            )
        check_count("accumulate", self.accumulate)
        self.computes_loss = _takes_closure(self.optimizer)
        if self.accumulate > 1 and (self.every is not None or self.computes_loss):
            other = "an optimizer that takes a closure" if self.computes_loss else "every="
            raise ConfigError(
                f"OptimizerHook(accumulate={self.accumulate}) does not go with {other}: leave one "
                "out, and make the sub-batches larger."
            )
        self._parts = 0  # sub-batches whose gradients were added up
        self._weight = 0.0  # the sum of their weights
        self._first_samples = self._samples = 1  # of the first of them, and of the present one
        self.loss_components = None if self.loss_components is None else list(self.loss_components)
        self.graph: GraphResult | None = None
        self.retain_graph = False
        self.scaler: torch.amp.GradScaler | None = None
        self.gradient_hooks: list[Callable[[torch.optim.Optimizer], None]] = []
        self.average_over_ranks: Callable[[Sequence[torch.Tensor]], None] | None = None
        self._given = [
            {name: value for name, value in group.items() if isinstance(value, (int, float, tuple))}
            for group in self.optimizer.param_groups
        ]
        self._metrics: Metrics | None = None
        self._checks: FiniteChecks | None = None
        self._cadence: Every | None = None  # of `backward` and `step`, if they are separate
        self._is_due = True
        self._metric = "train/grad_norm"

    def __call__(
        self, losses: TensorDictBase, clip_grad_norm: bool, clip_norm: float | None, index: int
    ) -> TensorDictBase:
        """Take one optimizer step, and return ``losses``.

        Args:
            losses: Loss components, each a scalar. Without a trainer, the norm is added to them.
            clip_grad_norm: Whether ``clip_norm`` bounds the total norm, or each element.
            clip_norm: The bound; ``None`` for no clipping.
            index: Index of the step in its epoch; not used.

        Raises:
            HookError: If there is no such loss.
            NonFiniteError: If the gradient is NaN or infinite; the parameters are unchanged.
        """
        if self.computes_loss:
            return self._step_with_closure(losses, clip_grad_norm, clip_norm)
        self._differentiate(losses)
        return self.step(losses, clip_grad_norm, clip_norm)

    def _step_with_closure(
        self, sub_batch: TensorDictBase, clip_grad_norm: bool, clip_norm: float | None
    ) -> TensorDictBase:
        computed: list[TensorDictBase] = []

        def closure() -> torch.Tensor | None:
            self.optimizer.zero_grad()
            losses = self.trainer.compute_loss(sub_batch)
            self._differentiate(losses)
            norm = self._processed(clip_grad_norm, clip_norm)
            if not computed:
                self._check_and_log(norm, losses)
                if self._checks is not None:  # it cannot skip a step
                    self._checks.settle()
            computed.append(losses.detach())
            total = total_loss(computed[-1], self.loss_components)
            if total is not None and self.average_over_ranks is not None:
                self.average_over_ranks([total := total.clone()])  # they evaluate equally often
            return total

        self.optimizer.step(closure)  # type: ignore[arg-type]
        self.optimizer.zero_grad()
        return computed[0]

    def backward(self, losses: TensorDictBase, *_: Any) -> None:
        """Compute the gradients of this optimizer's parameters, if a step is due."""
        if self._cadence is not None:
            self._is_due = self._cadence.due(self.trainer.progress)
        if self._is_due:
            self._differentiate(losses)

    def step(
        self, losses: TensorDictBase, clip_grad_norm: bool, clip_norm: float | None, index: int = 0
    ) -> TensorDictBase:
        """Clip the gradients, take the step and delete the gradients, if `backward` was due."""
        if not self._is_due:
            return losses
        if self.is_accumulating():
            if self._metrics is None:
                return losses
            self._metrics.log_losses(losses)
            raise SkipOptimStep("gradients are accumulated")
        taken = self.graph if self.graph is not None and self.graph.takes_step else None
        norm = self._processed(clip_grad_norm, clip_norm) if taken is None else taken.norm
        if norm is not None:
            self._check_and_log(norm, losses)
        if taken is None:
            self._take_step()
        return losses

    def is_accumulating(self) -> bool:
        """Whether the gradients are those of some sub-batches, and a step needs more."""
        return 0 < self._parts < self.accumulate

    def _processed(self, clip_grad_norm: bool, clip_norm: float | None) -> torch.Tensor:
        """Process and clip the gradients; return their norm before."""
        for process in self.gradient_hooks:
            process(self.optimizer)
        if self._parts:
            grads = [p.grad for p in parameters_of(self.optimizer) if p.grad is not None]
            torch._foreach_div_(grads, self._weight)
            self._parts, self._weight = 0, 0.0
        return self.clip(clip_grad_norm, clip_norm)

    def _check_and_log(self, norm: torch.Tensor, losses: TensorDictBase) -> None:
        # Sharded parameters have a sharded norm.
        if norm.__class__ is not torch.Tensor and hasattr(norm, "full_tensor"):
            norm = norm.full_tensor()
        metrics = self._metrics
        if metrics is None or self._checks is None:
            losses.set("grad_norm", norm)
        elif self.scaler is not None:
            # The norm is logged unless it overflowed, since that step is skipped.
            norms = Samples(norm.reshape(1), norm.isfinite().reshape(1))
            scale = self.scaler.scale(torch.ones((), device=norm.device))
            metrics.log({"train/loss_scale": scale, self._metric: norms})
            return
        elif norm.is_cpu:
            metrics.log({self._metric: norm.item()})
        else:
            metrics.log({self._metric: norm})
            self._checks.see(self, [norm], self._nonfinite)
            return
        if not math.isfinite(number := norm.item()):
            self.optimizer.zero_grad()
            raise self._nonfinite([number])

    def _nonfinite(self, norm: Sequence[float], where: str = "") -> NonFiniteError:
        return NonFiniteError(
            f"the gradient of {self.loss_components or 'the loss'} has the norm {norm[0]}"
            f"{where and f' {where}'}; the parameters are as they were before this step. Lower the "
            "learning rate, or look for a square root, logarithm or division near 0 in the loss."
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the optimizer's state, initial hyperparameters, loss scale, summed gradients."""
        more: dict[str, Any] = {}
        if self.scaler is not None:
            more["scaler"] = self.scaler.state_dict()
        if self._parts:
            counts = {name: getattr(self, name) for name in _ACCUMULATED}
            grads = [parameter.grad for parameter in parameters_of(self.optimizer)]
            more["accumulated"] = {**counts, "grads": grads}
        return {**self.optimizer.state_dict(), "given": self._given, **more}

    def mismatches(self, saved: Mapping[str, Any]) -> list[str]:
        """List differing numbers of parameters per group, and gradients summed for too long."""
        if (parts := (saved.get("accumulated") or {}).get("_parts", 0)) >= self.accumulate:
            return [f"accumulate is {self.accumulate} here, and {parts} sub-batches are summed up"]
        here = [len(group["params"]) for group in self.optimizer.param_groups]
        there = [len(group["params"]) for group in saved.get("param_groups", ())]
        if here == there or not there:
            return []
        return [f"its groups hold {here} parameters here and {there} in the state"]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the optimizer's state.

        A hyperparameter that was constructed with another value than the saved one, such as a new
        learning rate, keeps the new value; if it changed during the run, it is scaled.

        Raises:
            StateMismatchError: If the moments of a parameter do not have its shape.
        """
        state = dict(state_dict)
        then, scaler = state.pop("given", self._given), state.pop("scaler", None)
        accumulated = state.pop("accumulated", None)
        if scaler is not None and self.scaler is not None:
            self.scaler.load_state_dict(scaler)
        self.optimizer.load_state_dict(state)
        check_moments(self.optimizer)
        if accumulated is not None:
            for name in _ACCUMULATED:
                setattr(self, name, accumulated[name])
            own = parameters_of(self.optimizer)
            for parameter, grad in zip(own, accumulated["grads"], strict=True):
                part = sharded_as(grad, parameter)
                parameter.grad = None if part is None else part.to(parameter.device, copy=True)
        for group, before, now in zip(self.optimizer.param_groups, then, self._given, strict=False):
            for name in before.keys() & now.keys():
                if before[name] == now[name]:
                    continue
                if group[name] == before[name]:
                    group[name] = now[name]
                elif isinstance(now[name], float) and before[name]:
                    group[name] *= now[name] / before[name]

    def register(self, trainer: Loop, name: str = "optimizer") -> None:
        """Register at ``optimizer``.

        With several optimizers all gradients are computed before the first step, which may change
        parameters that another loss depends on.
        """
        check_optimizer(self.optimizer, trainer.loss_module)
        for other_name, other in trainer.registry.modules.items():
            if isinstance(other, OptimizerHook):
                if shared := self._shared_with(other):
                    raise ConfigError(
                        f"OptimizerHook {name!r} minimizes {shared}, as {other_name!r} does "
                        "already. Give each its own loss_components (and Trainer no optimizer=)."
                    )
                # The losses may share a part of the graph with this one.
                other.retain_graph = True
        self._metrics = trainer.metrics
        self._checks = trainer.finite
        if trainer.precision.scales:
            if self.computes_loss:
                raise ConfigError(
                    f"precision='fp16' scales losses, which a {type(self.optimizer).__name__} "
                    "would take for their values: use 'bf16'."
                )
            self.scaler = torch.amp.GradScaler(trainer.precision.device_type)
        if name != "optimizer":
            self._metric = f"train/grad_norm_{name}"
        trainer.register_module(name, self)
        if self.accumulate > 1:
            trainer.register_op("post_loss", self.count_samples)
        if self.loss_components is None or self.computes_loss:
            trainer.register_op("optimizer", self, every=self.every)
        else:
            if self.every is not None:
                # One cadence for both, so that a step never uses gradients of another step.
                self._cadence = trainer.cadences[f"optimizer/{name}"] = self.every.copy()
            trainer.register_op("optimizer", self.backward)
            trainer.register_op("optimizer", self.step, priority=AFTER)

    def count_samples(self, sub_batch: TensorDictBase) -> None:
        """Note the number of samples, by which the loss counts."""
        self._samples = count_valid(sub_batch)

    def on_train_start(self, trainer: Loop) -> None:
        """Check that no other hook takes the optimizer steps, and that all accumulate alike."""
        hooks = [hook for hook in trainer.registry.hooks() if isinstance(hook, OptimizerHook)]
        if len(numbers := {hook.accumulate for hook in hooks}) > 1:
            raise ConfigError(
                f"the optimizers accumulate over {sorted(numbers)} sub-batches: give every "
                "OptimizerHook the same accumulate=."
            )
        entries = trainer.registry.points["optimizer"].entries
        own = next((e.name for e in entries if e.computes_loss and e.owner is not self), None)
        if own is not None and any(entry.owner is self for entry in entries):
            raise ConfigError(
                f"{own!r} takes the optimizer steps: pass Trainer no optimizer=, nor a hook."
            )

    def _differentiate(self, losses: TensorDictBase) -> None:
        """Compute the gradients; with components, only of the optimizer's parameters."""
        if self.graph is not None and self.graph.takes_step:
            return
        if self.graph is not None and self.graph.grads[0]:
            self.optimizer.zero_grad()
            for parameter, grad in zip(*self.graph.grads, strict=True):
                parameter.grad = grad
            return
        total = total_loss(losses, self.loss_components)
        if total is None:
            raise HookError(
                f"no {self.loss_components or 'key that begins with loss'} among the losses "
                f"{sorted(map(str, losses.keys()))}: rename them, or pass loss_components."
            )
        if self.scaler is not None:
            total = self.scaler.scale(total)
        parts = self._parts
        if self.accumulate > 1:
            if not parts:
                self._first_samples = self._samples
            weight = self._samples / self._first_samples
            total = total * weight
            self._weight += weight
            self._parts += 1
        if self.loss_components is None:
            total.backward()  # type: ignore[no-untyped-call]
            return
        if not parts:
            self.optimizer.zero_grad()  # may be left from a skipped step
        total.backward(  # type: ignore[no-untyped-call]
            inputs=[p for p in parameters_of(self.optimizer) if p.requires_grad],
            retain_graph=self.retain_graph,
        )

    def clip(self, clip_grad_norm: bool, clip_norm: float | None) -> torch.Tensor:
        """Clip the gradients; return their norm before."""
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        own: Any = getattr(self.optimizer, "clip_grad_norm_", None)  # FlatAdam has a faster one
        if clip_norm is not None and clip_grad_norm and own is not None:
            return own(clip_norm)
        parameters = parameters_of(self.optimizer)
        if clip_norm is not None and clip_grad_norm:
            return nn.utils.clip_grad_norm_(parameters, clip_norm)
        norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        if clip_norm is not None:
            nn.utils.clip_grad_value_(parameters, clip_norm)
        return norm

    def _take_step(self) -> None:
        """Take the step, unless a value is not finite, and delete the gradients."""
        optimizer: Any = self.optimizer
        for group in optimizer.param_groups:
            for parameter in group["params"] if group.get("fused") else ():
                if parameter.grad is not None:  # fused kernels scramble other strides
                    parameter.grad = laid_out_as(parameter, parameter.grad)
        reasons: list[torch.Tensor | None] = []  # 1 on the parameters' device to skip the step
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            reasons = [] if self._checks is None else [self._checks.found_inf]
            if self.scaler is not None:  # what scaler.step alone would use
                reasons += self.scaler._found_inf_per_device(optimizer).values()
        elif self._checks is not None:
            self._checks.settle()
        found = [reason for reason in reasons if reason is not None]
        if found:
            optimizer.found_inf = found[0] if len(found) == 1 else torch.stack(found).amax()
            try:
                optimizer.step()
            finally:
                del optimizer.found_inf
        elif self.scaler is not None:
            self.scaler.step(optimizer)
        else:
            optimizer.step()
        if self.scaler is not None:
            self.scaler.update()
        optimizer.zero_grad()

    def _shared_with(self, other: OptimizerHook) -> str:
        if self.loss_components is None or other.loss_components is None:
            return "every loss"
        return ", ".join(sorted(set(self.loss_components) & set(other.loss_components)))


# -- Checks of optimizers.


def parameters_of(optimizer: torch.optim.Optimizer) -> list[torch.nn.Parameter]:
    """Return the parameters of all groups of ``optimizer``."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def check_optimizer(optimizer: Any, loss_module: Any) -> None:
    """Refuse an optimizer that shares no parameter with the loss."""
    if not isinstance(getattr(optimizer, "param_groups", None), list):
        raise ConfigError(f"optimizer={optimizer!r:.80} is not a torch.optim.Optimizer.")
    if not isinstance(loss_module, torch.nn.Module):
        return
    trained = {id(p) for p in loss_module.parameters()}
    if trained and not any(id(p) in trained for p in parameters_of(optimizer)):
        raise ConfigError(
            f"the optimizer ({type(optimizer).__name__}) shares no parameter with loss_module: "
            "build it from loss_module.parameters(), after the last .to(device)."
        )


def _takes_closure(optimizer: Any) -> bool:
    """Return whether ``optimizer.step`` cannot be called without a closure."""
    step = getattr(optimizer, "step", None)
    closure = inspect.signature(step).parameters.get("closure") if callable(step) else None
    return closure is not None and closure.default is closure.empty


_ACCUMULATED = ("_parts", "_weight", "_first_samples")
_MOMENTS = (
    *("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "momentum_buffer", "sum", "step"),
    *("square_avg", "grad_avg", "acc_delta", "prev", "step_size", "ax"),
)


def check_moments(optimizer: torch.optim.Optimizer) -> None:
    """Check the shapes of an optimizer's moments, and give them their parameter's strides.

    Fused optimizers check neither. Only optimizers of torch are checked.
    """
    if not any(kind.__module__.startswith("torch.optim.") for kind in type(optimizer).__mro__[:-2]):
        return
    for parameter, state in optimizer.state.items():
        for name in _MOMENTS if isinstance(parameter, torch.Tensor) else ():
            value = state.get(name)
            if not isinstance(value, torch.Tensor):
                continue
            if value.numel() != 1 if name == "step" else value.shape != parameter.shape:
                raise StateMismatchError(
                    f"the optimizer's {name!r} is {list(value.shape)} in the state, and its "
                    f"parameter {list(parameter.shape)}."
                )
            if name != "step":
                state[name] = laid_out_as(parameter, value)


# -- `NanGuard`.


class NanGuard(TrainerHookBase):
    """Raises before the optimizer step if a loss is NaN or infinite.

    It is on by default; ``Trainer(nan_guard=False)`` leaves it out.

    On an accelerator it does not synchronize: `OptimizerHook` skips this step and all later ones,
    and the error is raised at the end of the log window or before a save, whichever is first; see
    `hooktrainer.loop.finite.FiniteChecks`. If another hook takes the steps, it synchronizes at
    every step.
    """

    at = "optimizer"
    priority = EARLY  # before every optimizer
    trains = False

    def __call__(
        self, losses: TensorDictBase, clip_grad_norm: bool, clip_norm: float | None, index: int
    ) -> None:
        """Check every ``loss*`` entry.

        Raises:
            NonFiniteError: Names the entry, its value and the step.
        """
        deferred: dict[str, torch.Tensor] = {}
        for key, loss in losses.items():
            if not key.startswith("loss"):
                continue
            if not loss.is_cpu and self.is_registered and self._may_defer():
                deferred[key] = loss
                continue
            # Reading costs a tenth of torch.isfinite for the scalars that losses are.
            value = loss.item() if loss.ndim == 0 else loss.float().sum().item()
            if not math.isfinite(value):
                where = ""
                if self.is_registered:
                    steps, frames = self.trainer.progress.optim_steps, self.trainer.progress.frames
                    unit = self.trainer.source.unit
                    where = f" at optimizer step {steps}, after {frames} {unit}"
                raise self._error(key, value, where)
        if deferred:
            keys = tuple(deferred)

            def error(values: Sequence[float], where: str) -> NonFiniteError:
                return next(
                    self._error(key, value, f" {where}")
                    for key, value in zip(keys, values, strict=True)
                    if not math.isfinite(value)
                )

            scalars = [loss.float().sum() for loss in deferred.values()]
            self.trainer.finite.see((self, keys), scalars, error)

    def _may_defer(self) -> bool:
        """Whether every hook that takes steps skips them after a loss that is not finite."""
        owners = [entry.owner for entry in self.trainer.registry.points["optimizer"].entries]
        trains = [owner for owner in owners if getattr(owner, "trains", True)]
        return all(getattr(owner, "leaves_out_steps", False) for owner in trains)

    def _error(self, key: str, value: float, where: str) -> NonFiniteError:
        return NonFiniteError(
            f"{key} is {value}{where}; the parameters are as they were before this step. Look at "
            "the inputs of the loss, lower the learning rate, or pass clip_norm."
        )
