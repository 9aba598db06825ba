"""`RunRecorder`: keeps ``run.json`` current and prints a summary at the end."""

from __future__ import annotations

import json
from dataclasses import KW_ONLY, dataclass
from typing import Any

from rich.console import Console

from ..base.endings import ENDED
from ..base.fs import write_atomically
from ..base.words import printable, shell_word
from ..loop.cadence import Every
from ..loop.hook import TrainerHookBase
from ..loop.loop import Loop
from ..loop.timing import time_table
from ..store.run_dir import RunDir


@dataclass(eq=False, repr=False)
class RunRecorder(TrainerHookBase):
    """Writes the state of a run to ``run.json`` about once a second.

    ``run.json`` holds the status, the reason for the end, the counters and the last metrics.

    Args:
        run_dir: The run's directory.
        config: Options of the run, written to ``config.yaml`` and to the loggers.
        report: Whether to print timings and results at the end.
    """

    at = "post_steps"
    every = Every(seconds=1.0)
    phase = "log"
    _started = False

    run_dir: RunDir
    config: Any = None
    _: KW_ONLY
    report: bool = True

    def __call__(self) -> None:
        """Write the status, the counters and the metrics."""
        progress, control = self.trainer.progress, self.trainer.control
        mirror = getattr(self.trainer.checkpoints, "mirror", None)
        has_metrics = self._started or control.status in ENDED
        self.run_dir.update(
            **({} if mirror is None else {"mirrored_frames": mirror.frames}),
            status=control.status,
            reason=control.stop_reason,
            frames=progress.frames,
            optim_steps=progress.optim_steps,
            seconds=round(progress.seconds, 3),
            metrics=self.trainer.metrics.reported if has_metrics else {},
        )

    def on_train_start(self, trainer: Loop) -> None:
        """Write the configuration and the status."""
        self._started = True
        if self.config is not None:
            self.run_dir.write_config(self.config)
            for logger in trainer.loggers:
                logger.log_hparams(self.config)
        hooks = json.dumps(trainer.registry.table(), indent=1)
        write_atomically(self.run_dir.hooks_file, hooks + "\n", durable=False)
        self.run_dir.update(total_frames=trainer.known_total, unit=trainer.source.unit)
        self()

    def close(self) -> None:
        """Write the final status and print it."""
        if not self.is_registered:
            return
        trainer, control = self.trainer, self.trainer.control
        self()
        if not self.report:
            return
        console = Console(highlight=False, soft_wrap=True)
        if self._started:
            console.print(time_table(trainer.timing.totals))
        frames, seconds = trainer.progress.frames, trainer.progress.seconds
        reached = f"{frames:,} {trainer.source.unit} in {seconds:.1f} s"
        if seconds:
            reached += f" ({frames / seconds:,.0f} a second)"
        # A finished run that was resumed has its metrics only in the directory.
        score = self.run_dir.read().get("metrics", {}).get("eval/return")
        if control.stop_reason is not None:
            what = control.stop_reason
        elif score is not None:
            what = f"{control.status}: eval/return {float(score):.1f}"
        else:
            what = control.status
        look = {k: v for logger in trainer.loggers for k, v in logger.how_to_view().items() if v}
        where = look.get("tensorboard") or next(iter(look.values()), None)
        where = where or f"in {shell_word(self.run_dir.path)}"
        console.print(f"{printable(what)} · {reached} · look: {where}", markup=False)
