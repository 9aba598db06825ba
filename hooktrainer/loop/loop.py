"""The training loop: collect a batch, optimize on it; everything else is a hook."""

from __future__ import annotations

import itertools
from typing import Any

from tensordict import TensorDict, TensorDictBase, is_tensor_collection

from ..base.cores import compute_threads, threads_for
from ..base.words import listed
from ..errors import HookError, NonFiniteError, SkipOptimStep, as_failure
from .check_trainer import not_a_tensordict
from .finite import blame_environment
from .lifecycle import Lifecycle
from .signals import GracefulSignals, SignalExit

_MAX_UNCHANGED = 10_000  # steps on one and the same batch, after which no hook will end the epoch


class Loop(Lifecycle):
    """The bare loop: collects batches and calls the hooks at the ten points.

    The loop is drawn in `hooktrainer.loop.hook_points`. It has no hooks, optimizer or file format
    of its own; `hooktrainer.Trainer` adds them. It trains once: when `train` returns or raises,
    everything is closed. Its arguments are those of `hooktrainer.Trainer`, but for ``loggers``,
    ``saver``, ``hooks`` (registered before the collector) and ``bridge`` (`Bridge`).

    Raises:
        ConfigError: If an argument is invalid.
    """

    def train(self) -> None:
        """Run until ``total_frames``, a stop request, or the end of the collector.

        Does nothing if the loaded run has ended; see `has_ended`.

        Raises:
            ConfigError: If nothing would be trained, or the trainer is closed.
            SystemExit: With code 128 + n after signal n (SIGINT, SIGTERM or SIGHUP); the run
                finished its batch and was saved, unless that took too long. With a message and code
                1 if code in the run called ``sys.exit(0)``.
            Exception: From a hook, the collector or the loss, with a note that names the hook and
                point.
        """
        self._check_open()
        if self.has_ended:
            self.control.end()
            self.shutdown()
            return
        threads = self.threads or threads_for(self.loss_module)
        signals = GracefulSignals(self.control, self.grace, self.bridge.only_cleans_up)
        with signals, compute_threads(threads):
            self.run()
        if self.control.signal is not None:
            raise SignalExit(self.control.signal, deadline=self.control.deadline)

    def run(self) -> None:
        """Run the loop as `train` does, without signal handlers and thread settings."""
        point = self.registry.points
        # A collector counts transitions, of frame_skip frames each.
        warm_up = self.source.init_random_frames * self.frame_skip
        batch: TensorDictBase | None = None
        try:
            self._start()
            for batch in self._batches():
                batch = point["batch_process"](batch)
                point["pre_steps_log"](batch)
                if self.collected_frames >= warm_up:
                    with self.timing.phase("optimize"):
                        self.optim_steps(batch)
                point["post_steps"]()
                point["post_steps_log"](batch)
                if not self._end_batch():
                    break
            self._finish()
        except BaseException as error:
            raised = as_failure(error, self.collected_frames)
            if isinstance(error, NonFiniteError) and batch is not None:
                raised = blame_environment(error, batch)
            self._fail(raised)
            if raised is error:
                raise
            raise raised from error
        self.shutdown()

    def optim_steps(self, batch: TensorDictBase) -> None:
        """Optimize on one batch: ``num_epochs`` times ``optim_steps_per_batch`` steps."""
        point, progress, metrics = self.registry.points, self.progress, self.metrics
        process_optim_batch = point["process_optim_batch"]
        optimizer, post_optim = point["optimizer"], point["post_optim"]
        post_optim_log = point["post_optim_log"]
        loss_module = self.precision.around(self.compiled_loss or self.loss_module)
        loss_module = self.timing.traced("optimize/loss", loss_module)
        loss_module, post_loss = self.registry.forward(loss_module)
        clip_grad_norm, clip_norm = self.clip_grad_norm, self.clip_norm
        steps = self.optim_steps_per_batch

        point["pre_optim_steps"]()
        for epoch in range(self.num_epochs):
            self.epoch = epoch
            for j in itertools.count() if steps is None else range(steps):
                made = progress.optim_steps
                try:
                    try:
                        # A point without hooks is not even called.
                        sub_batch = (
                            process_optim_batch(batch) if process_optim_batch.calls else batch
                        )
                    except StopIteration as error:
                        if j or epoch:
                            break
                        raise HookError(
                            f"StopIteration {error.__notes__[-1]}, before the first optimizer "  # type: ignore[attr-defined]
                            "step of a batch: begin an iterator that ran out again; to train only "
                            "on some batches, call trainer.skip_optim_step()."
                        ) from error
                    if j == _MAX_UNCHANGED and sub_batch is batch and steps is None:
                        hooks = [entry.name for entry in process_optim_batch.entries]
                        raise HookError(
                            f"{j:,} optimizer steps on one batch, which the hooks at "
                            f"process_optim_batch ({listed(hooks)}) left unchanged: one of them "
                            "ends the epoch by raising StopIteration, or pass a number of steps."
                        )
                    progress.optim_steps = made + 1
                    losses = loss_module(sub_batch)
                    if losses.__class__ is not TensorDict and not is_tensor_collection(losses):
                        raise HookError(not_a_tensordict("loss_module returned", losses))
                    if post_loss.calls:
                        sub_batch = post_loss(sub_batch)
                    losses = optimizer(losses, clip_grad_norm, clip_norm, j)
                    made += 1
                    if post_optim.calls:
                        post_optim()
                    if post_optim_log.calls:
                        post_optim_log(sub_batch)
                    metrics.log_losses(losses)
                except NonFiniteError as error:
                    error.batch = sub_batch
                    raise
                except SkipOptimStep:
                    progress.optim_steps = made

    def compute_loss(self, sub_batch: TensorDictBase, method: str | None = None) -> Any:
        """Compute the losses of a sub-batch; for a hook that sets ``computes_loss``.

        It calls the loss module, then the hooks at ``post_loss`` and those at ``optimizer`` that
        precede the calling hook, such as `NanGuard`.

        Args:
            sub_batch: The sub-batch, or a part of it.
            method: A method of the loss module to call instead, without hooks; returns its result.

        Returns:
            The losses, a TensorDict.

        Raises:
            HookError: If the loss module returns something else.
        """
        if method is not None:
            return self.precision.around(getattr(self.loss_module, method))(sub_batch)
        loss_module = self.precision.around(self.loss_module)
        losses = self.timing.traced("optimize/loss", loss_module)(sub_batch)
        if not is_tensor_collection(losses):
            raise HookError(not_a_tensordict("loss_module returned", losses))
        if not self.registry.computes_loss:
            return losses
        return self.registry.with_losses(sub_batch, losses, self.clip_grad_norm, self.clip_norm)
