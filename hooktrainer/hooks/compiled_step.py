"""`CompiledStep`: computes optimizer steps as compiled graphs."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Hashable
from inspect import signature
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import nn

from ..base.checks import check_count
from ..base.frames_bar import print_line
from ..errors import ConfigError
from ..graphs.compiling import CannotCompileError, GraphOr
from ..graphs.functional_loss import FunctionalLoss, Losses
from ..graphs.step_graph import GradientGraph, Objective, StepGraph, StepOutcome, StepRules
from ..loop.hook import LAST, TrainerHookBase
from ..loop.loop import Loop
from ..networks.memory import Memory
from ..objectives.common import Entries, Loss
from ..objectives.gae import GAE
from ..optim import FlatAdam
from .kl_adaptive_lr import KLAdaptiveLR
from .mini_batches import INDEX, MiniBatches
from .optimizer import GraphResult, NanGuard, OptimizerHook, parameters_of
from .value_estimator import ValueEstimatorHook

_log = logging.getLogger(__name__)


class CompiledStep(TrainerHookBase):
    """Computes losses and gradients, and takes optimizer steps, as compiled graphs.

    All ten hook points stay. What is compiled depends on the hooks between the computations:

    - losses and gradient are always one graph;
    - clipping and the step join it with one `FlatAdam` for all losses, and no hooks but `NanGuard`
      and `KLAdaptiveLR` at ``post_loss`` and ``optimizer``;
    - several steps are one graph if also ``post_optim`` and ``post_optim_log`` have no hook, and
      ``process_optim_batch`` has `MiniBatches` alone.

    The rest runs eagerly, and one line in the log names the reason. A compiled step equals the
    eager one to rounding and draws the same random numbers. The first steps take seconds to
    compile, less with inductor's cache; see `hooktrainer.graphs.compiling`. A custom loss, a module
    from TensorDict to TensorDict, must have no side effects except what it writes into the batch.

    Args:
        steps: Optimizer steps per graph where possible. More take longer to compile for little
            gain.

    Raises:
        ConfigError: If the loss is no module.
    """

    at = (("pre_optim_steps", "_plan_if_changed", LAST),)
    is_saved = False

    def __init__(self, steps: int = 4) -> None:
        check_count("steps", steps)
        self.steps = steps
        self._loss: FunctionalLoss | None = None
        self._hooks: list[OptimizerHook] = []
        self._estimators: list[GAE] = []
        self._objectives: list[Objective] = []
        self._changes = -1
        self._fused: GraphResult | None = None  # None where only gradients are computed
        self._mini_batches: MiniBatches | None = None  # None where a step is a graph by itself
        self._rate: KLAdaptiveLR | None = None  # computed by the graph
        self._graphs: dict[Hashable, Any] = {}  # the StepGraphs and GradientGraphs by key
        self._outcomes: deque[StepOutcome] = deque()
        self._guarded = False
        self._reported = ""

    def on_train_start(self, trainer: Loop) -> None:
        """Replace the computation of the losses and the updates of the optimizers by graphs."""
        module = trainer.loss_module
        self._hooks = [h for h in trainer.registry.hooks() if isinstance(h, OptimizerHook)]
        own = [e.name for e in trainer.registry.points["optimizer"].entries if e.computes_loss]
        problem = None
        if not isinstance(module, nn.Module):
            problem = f"the loss is a {type(module).__name__}, not a torch.nn.Module"
        elif module._forward_hooks or module._forward_pre_hooks:
            problem = f"the {type(module).__name__} has forward hooks, which a graph does not call"
        elif isinstance(module, Loss) and "compute" not in signature(module.forward).parameters:
            problem = f"{type(module).__name__}.forward takes no compute=, as Loss.forward does"
        elif own:
            problem = f"{own[0]!r} computes the losses and takes the optimizer steps"
        elif not self._hooks:
            problem = "no OptimizerHook takes the steps"
        elif any(hook.accumulate > 1 for hook in self._hooks):
            problem = "accumulate= adds up gradients, which a graph does not"
        elif trainer.precision.scales:
            problem = "precision='fp16' scales losses, which is not compiled; bf16 is"
        if problem is not None:
            raise ConfigError(f"CompiledStep: {problem}: change that, or leave CompiledStep out.")
        assert isinstance(module, nn.Module)
        self._objectives = [(parameters_of(h.optimizer), h.loss_components) for h in self._hooks]
        self._loss = FunctionalLoss(module, trainer.precision.arguments)
        trainer.compiled_loss = self._compute
        for hook in trainer.registry.hooks():
            gae = hook.value_estimator if isinstance(hook, ValueEstimatorHook) else None
            if isinstance(gae, GAE) and gae.value_network is not None:
                gae.compiled = GraphOr(gae.compute, "the advantages")
                self._estimators.append(gae)

    def close(self) -> None:
        """Restore eager computation everywhere."""
        self._graphs.clear()
        if self._loss is not None:
            self.trainer.compiled_loss = self._loss = None
        for hook in self._hooks:
            hook.graph = None
        for gae in self._estimators:
            gae.compiled = None
        if self._mini_batches is not None:
            self._mini_batches.gathers = True
            self._mini_batches = None

    def _plan_if_changed(self) -> None:
        """Decide how much is one graph, again if the hooks have changed."""
        loss = self._loss
        if loss is None or self._changes == self.trainer.registry.changes:
            return
        self._changes = self.trainer.registry.changes
        if self._mini_batches is not None:
            self._mini_batches.gathers = True
        self._fused = self._mini_batches = self._rate = None
        reason = self._step_unsupported_reason()
        if reason is None:
            self._fused = self._hooks[0].graph = GraphResult(takes_step=True)
            at_optimizer = self.trainer.registry.points["optimizer"].entries
            self._guarded = any(type(entry.owner) is NanGuard for entry in at_optimizer)
            self._rate = next(
                (e.owner for e in at_optimizer if isinstance(e.owner, KLAdaptiveLR)), None
            )
            self._mini_batches, reason = self._source_of_several()
            if not loss.compute_always_the_same() and self._mini_batches is not None:
                self._mini_batches, reason = None, f"{type(loss.module).__name__} alternates"
            if self._mini_batches is not None:
                self._mini_batches.gathers = False
            how_much = "optimizer steps are graphs of their own"
        else:
            for hook in self._hooks:
                hook.graph = GraphResult(takes_step=False)
            how_much = "losses and gradient are a graph, the optimizer step is not"
        if reason is not None and reason != self._reported:
            self._reported = reason
            print_line(f"compiled: {how_much}, since {reason}.")

    def _step_unsupported_reason(self) -> str | None:
        """Return why a whole optimizer step cannot be a graph; ``None`` if it can."""
        points, hook = self.trainer.registry.points, self._hooks[0]
        if len(self._hooks) > 1 or hook.loss_components is not None:
            return "the losses are minimized one by one"
        if type(hook.optimizer) is not FlatAdam:
            return f"the optimizer is a {type(hook.optimizer).__name__}, not a FlatAdam"
        if hook.gradient_hooks:
            return "the gradient is processed before the step"
        rates = 0
        for entry in (*points["post_loss"].entries, *points["optimizer"].entries):
            owner = entry.owner
            if owner is hook:
                if entry.every is not None:
                    return f"{entry.name!r} takes a step {entry.every!r} only"
            elif (
                isinstance(owner, KLAdaptiveLR)
                and owner.optimizer is hook.optimizer
                and entry.point == "optimizer"
                and entry.every is None
                and not rates
            ):
                rates += 1
            elif type(owner) is not NanGuard:
                return f"{entry.name!r} is at {entry.point}"
        return None

    def _source_of_several(self) -> tuple[MiniBatches | None, str | None]:
        """Return the source of several steps' batches, or why these steps cannot be one graph."""
        points = self.trainer.registry.points
        for entry in (*points["post_optim"].entries, *points["post_optim_log"].entries):
            return None, f"{entry.name!r} is at {entry.point}"
        entries = points["process_optim_batch"].entries
        if self.steps == 1 or not entries:
            return None, None
        assert self._loss is not None
        if any(isinstance(each, Memory) for each in self._loss.module.modules()):
            return None, "in a graph a memory is unrolled over time, and several take too long"
        entry = entries[-1]
        if len(entries) == 1 and type(entry.owner) is MiniBatches and entry.every is None:
            return entry.owner, None
        return None, f"{entry.name!r} is at {entry.point}"

    def _compute(self, batch: TensorDictBase) -> TensorDictBase:
        if self._loss is None:  # closed in this batch: not compilable
            return self.trainer.loss_module(batch)
        return self._loss.forward(batch, self._losses)

    def _losses(self, batch: TensorDictBase) -> Losses:
        with self.trainer.precision.no_autocast():  # the graph applies it inside, to the losses
            return self._compiled(batch)

    def _compiled(self, batch: TensorDictBase) -> Losses:
        loss, mini_batches = self._loss, self._mini_batches
        assert loss is not None
        self._plan_if_changed()
        if mini_batches is not None and self._mini_batches is None:
            mini_batches.fill(batch)
        try:
            if self._fused is None:
                return self._differentiated(loss, loss.read(batch))
            if not self._outcomes:
                self._outcomes.extend(self._steps(loss, batch))
        except CannotCompileError as error:
            name = type(loss.module).__name__
            _log.warning("%s cannot be compiled, and is computed eagerly: %s", name, error)
            self.close()
            if mini_batches is not None:
                mini_batches.fill(batch)
            with torch.enable_grad():
                return loss({name: p for p, name in loss.names.items()}, loss.read(batch))
        step = self._outcomes.popleft()
        self._fused.norm = step.norm
        if self._rate is not None:
            self._rate.computed = step.rate
        return step.losses

    def _differentiated(self, loss: FunctionalLoss, entries: Entries) -> Losses:
        """Compute losses and gradients, with one graph for each key."""
        key = (loss.variant, next(iter(entries.values())).shape)
        graph: GradientGraph | None = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = GradientGraph(loss, self._objectives)
        out, grads = graph(entries)
        for hook, grad in zip(self._hooks, grads, strict=True):
            assert hook.graph is not None
            hook.graph.grads = grad
        return out

    def _steps(self, loss: FunctionalLoss, batch: TensorDictBase) -> list[StepOutcome]:
        """Take steps, with one graph for each key."""
        trainer, (hook,) = self.trainer, self._hooks
        batches = [batch]
        rows: list[torch.Tensor] = []
        if self._mini_batches is not None:
            following = self._mini_batches.upcoming(self.steps - 1)
            batches += [each for each in following if each.shape == batch.shape]
            if INDEX in batch:
                rows = [each[INDEX] for each in batches]
                batches = [self._mini_batches.rows]
        entries = [loss.read(each) for each in batches]
        clips = None
        if trainer.clip_norm is not None:
            clips = "norm" if trainer.clip_grad_norm else "value"
        rules = StepRules(clips, self._guarded, rule=self._rate)
        assert isinstance(hook.optimizer, FlatAdam)
        groups = len(hook.optimizer.flat_groups)
        key = (loss.variant, batch.shape, len(batches), len(rows), rules, groups)
        graph: StepGraph | None = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = StepGraph(loss, hook.optimizer, rules)
        device = hook.optimizer.flat_groups[0].state.parameters.device
        is_finite = None if device.type == "cpu" else trainer.finite.on(device)
        return graph(entries, trainer.clip_norm, rows, is_finite)
