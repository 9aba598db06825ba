"""`Trainer`: the loop with an optimizer, a NaN guard, loggers, files and checkpoints."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec

import torch
from tensordict import TensorDictBase
from typing_extensions import Self

from .base.checks import check_count, check_names, check_positive
from .base.endings import GRACE
from .base.tensordicts import is_loss
from .collect.adapt import adapt
from .collect.collector import schedules_of
from .errors import ConfigError
from .hooks.optimizer import NanGuard, OptimizerHook, check_optimizer
from .log.logger import as_loggers
from .loop.cadence import Every
from .loop.loop import Loop
from .loop.precision import Precision
from .loop.registry import Registry
from .store.backends import backend_name, get_backend
from .store.single_file import decode, read_plain
from .torchrl.hook_bridge import INSTEAD, TorchRLBridge, TorchRLNames

if TYPE_CHECKING:
    from .store import CheckpointManager

P = ParamSpec("P")


def _explaining(init: Callable[P, None]) -> Callable[P, None]:
    """Refuse an unknown argument with the nearest one, or with its replacement."""
    known = list(inspect.signature(init).parameters)[1:]

    @functools.wraps(init)
    def __init__(*args: P.args, **given: P.kwargs) -> None:  # noqa: N807
        check_names("Trainer", given, known, INSTEAD)
        init(*args, **given)

    return __init__


class Trainer(TorchRLNames, Loop):
    """Collects batches and optimizes on them; hooks do the rest.

    The loop, with its ten hook points, is drawn in `hooktrainer.loop.hook_points`. A trainer trains
    once: when `train` returns or raises, everything it uses is closed.

    It extends `hooktrainer.loop.loop.Loop` with the hooks for ``optimizer``, ``nan_guard`` and the
    policy's exploration schedule, with loggers, files and checkpoints, and with support for
    TorchRL's hooks and collectors.

    Args:
        collector: A `hooktrainer.collect.Collector`, or any iterable of TensorDicts, usually
            ``[num_envs, time]``. A method ``register`` is called with the trainer, as for hooks.
        total_frames: Environment frames at which training ends, including those before a resume;
            ``None`` to train until the collector ends. Frames are what the collector counts: of a
            `DataCollector`, samples.
        frame_skip: Environment frames per collected step; by default the collector's, else 1.
        optim_steps_per_batch: Optimizer steps per epoch; ``None``: until a hook at
            ``process_optim_batch`` raises ``StopIteration``.
        loss_module: Maps a TensorDict to a TensorDict whose ``loss*`` entries are minimized.
        optimizer: Optimizer of the sum of all ``loss*`` entries. To use several, register an
            `OptimizerHook` for each instead.
        accumulate: Sub-batches whose gradients are averaged for one step of ``optimizer``; see
            `OptimizerHook`.
        logger: One logger or several; see `hooktrainer.get_logger`.
        clip_grad_norm: Whether ``clip_norm`` bounds the total norm of the gradient rather than each
            element.
        clip_norm: The bound; ``None`` for no clipping.
        progress_bar: Whether to show a progress bar.
        seed: Seed of Python, NumPy, torch and the collector.
        save_trainer_interval: Frames between saves; or one or several cadences, any of which causes
            a save. The end of the run is always saved.
        log_interval: Frames in a log window. The first batch and the end of the run also end one.
        save_trainer_file: File replaced by every save. With ``CKPT_BACKEND=torchsnapshot`` or
            ``native`` the tensors are in a directory next to it.
        num_epochs: Passes over a batch.
        checkpoints: Manager of the run's checkpoints, to which the state is saved too. Closed with
            the trainer.
        threads: CPU threads of torch while training; ``None``: one for small networks, all for
            large ones.
        nan_guard: Whether a NaN or infinite loss stops training before the optimizer step.
        grace: Seconds from SIGINT, SIGTERM or SIGHUP to the end of the process, including the
            current batch and a checkpoint.
        precision: ``"bf16"`` or ``"fp16"``: compute losses in it by ``torch.autocast``; parameters,
            gradients and optimizers stay in float32. With ``"fp16"`` losses are scaled, and a step
            whose gradient overflows is skipped.

    Raises:
        ConfigError: If an argument is invalid.
        CheckpointError: If ``CKPT_BACKEND`` names no back end.
    """

    @_explaining
    def __init__(
        self,
        *,
        collector: Iterable[TensorDictBase],
        total_frames: int | None = None,
        frame_skip: int | None = None,
        optim_steps_per_batch: int | None,
        loss_module: Callable[[TensorDictBase], TensorDictBase],
        optimizer: torch.optim.Optimizer | None = None,
        accumulate: int = 1,
        logger: Any | Sequence[Any] | None = None,
        clip_grad_norm: bool = True,
        clip_norm: float | None = None,
        progress_bar: bool = True,
        seed: int | None = None,
        save_trainer_interval: int | Every | Sequence[Every] = 10_000,
        log_interval: int = 10_000,
        save_trainer_file: str | Path | None = None,
        num_epochs: int = 1,
        checkpoints: CheckpointManager | None = None,
        threads: int | None = None,
        nan_guard: bool = True,
        grace: float = GRACE,
        precision: Literal["bf16", "fp16"] | None = None,
    ) -> None:
        check_count("total_frames", total_frames, none="until the collector ends")
        check_count(
            "optim_steps_per_batch", optim_steps_per_batch, none="until the sub-batches run out"
        )
        check_count("num_epochs", num_epochs)
        check_count("log_interval", log_interval)
        check_count("threads", threads, none="by the size of the networks")
        check_positive("clip_norm", clip_norm, none="no clipping")
        check_positive("grace", grace, "number of seconds")
        if not callable(loss_module):
            raise ConfigError(
                f"loss_module={loss_module!r:.80} is not callable: it maps a TensorDict to losses."
            )
        keys = getattr(loss_module, "out_keys", None)
        if keys and not any(map(is_loss, keys)):
            raise ConfigError(
                f"loss_module {type(loss_module).__name__} computes {list(keys)}, and no 'loss...'."
            )
        if optimizer is not None:
            check_optimizer(optimizer, loss_module)
        if save_trainer_file is not None:
            if Path(save_trainer_file).is_dir():
                raise ConfigError(f"save_trainer_file={save_trainer_file} is a directory.")
            get_backend(backend_name())  # refused now, and not at the first save
        super().__init__()
        self.collector = collector
        own_skip = self.source.frame_skip
        check_count("frame_skip", frame_skip, none="that of the collector")
        if frame_skip is not None and own_skip not in (None, frame_skip):
            raise ConfigError(
                f"frame_skip={frame_skip}, but the collector repeats each action {own_skip} times."
            )
        self.frame_skip = frame_skip or own_skip or 1
        own_total = self.source.total_frames
        known = total_frames or (own_total * self.frame_skip if own_total >= 0 else math.inf)
        self.total_frames = known
        self.optim_steps_per_batch = optim_steps_per_batch
        self.loss_module = loss_module
        self.optimizer = optimizer
        self.logger = logger
        self.loggers = as_loggers(logger)
        self.clip_grad_norm = clip_grad_norm
        self.clip_norm = clip_norm
        self.progress_bar = progress_bar
        self.seed = seed
        self.save_trainer_interval = save_trainer_interval
        self.log_interval = log_interval
        self.num_epochs = num_epochs
        self.threads = threads
        self.grace = grace
        self.precision = Precision(precision, loss_module)
        self.bridge = TorchRLBridge(self)
        self.registry = Registry(self)
        self.save_trainer_file = None if save_trainer_file is None else Path(save_trainer_file)
        self.checkpoints = checkpoints
        self.cadences = {"log": Every(frames=log_interval, at_start=True)}
        if not isinstance(save_trainer_interval, (Every, list, tuple)):
            check_count("save_trainer_interval", save_trainer_interval)
            save_trainer_interval = Every(frames=save_trainer_interval)  # type: ignore[arg-type]
        if isinstance(save_trainer_interval, Every):
            save_trainer_interval = [save_trainer_interval]
        for number, every in enumerate(save_trainer_interval, start=1):
            self.cadences[f"save_{number}" if number > 1 else "save"] = every.copy()

        if seed is not None:
            self.set_seed(seed)
        if nan_guard:
            NanGuard().register(self)
        if optimizer is not None:
            OptimizerHook(optimizer, accumulate=accumulate).register(self)
        elif accumulate != 1:
            raise ConfigError(
                f"accumulate={accumulate} without optimizer=: pass it to each OptimizerHook."
            )
        self.source.register(self)
        if schedules := schedules_of(self.source.policy):
            from .hooks.schedule import ExplorationSchedule  # which not every trainer needs

            ExplorationSchedule(schedules).register(self)

    @property
    def collector(self) -> Any:
        """The collector as given; the loop itself uses `source`."""
        return self._collector

    @collector.setter
    def collector(self, collector: Any) -> None:
        self._collector = collector
        self.source = adapt(collector)

    def load_from_file(
        self,
        file: str | Path,
        strict: bool = True,
        *,
        weights_only: bool = True,
        mmap: bool | None = None,
        map_location: Any = None,
    ) -> Self:
        """Restore a file of `save_trainer`, of this trainer or TorchRL's; see `load_state_dict`.

        Args:
            file: The file; for TorchRL's trainer also a directory or an archive.
            strict: As for `load_state_dict`; ignored for TorchRL's files.
            weights_only: Ignored, like ``mmap`` and ``map_location``: no pickle is ever run, and
                tensors are loaded to the trainer's devices.
            mmap: Ignored.
            map_location: Ignored.

        Raises:
            CheckpointError: If the file is damaged, or not a trainer's state.
            StateMismatchError: If the state does not fit the trainer.
        """
        from .torchrl import checkpoint as torchrl_checkpoint  # which not every trainer needs

        content = torchrl_checkpoint.read(Path(file)) or read_plain(file)
        if torchrl_checkpoint.recognizes(content):
            torchrl_checkpoint.load(self, content)
        else:
            self.load_state_dict(decode(content, file), strict=strict, copy=False)
        return self
