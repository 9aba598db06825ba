"""`WandbSink`: sends a run to Weights & Biases, online or offline."""

from __future__ import annotations

import itertools
import os
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..base.words import shell_word
from ..errors import ConfigError
from .sender import Sender

_EXIT_CODE: Final = {"interrupted": 255, "failed": 1}


class WandbSink(Sender):
    """Sends a run's files to one Weights & Biases run, the same one after a resume.

    Every row has the metric `step`, the x-axis of all others. W&B cannot remove rows: what was sent
    after the checkpoint of a resume stays, and those steps are not written again.

    Args:
        directory: Directory of the run; W&B creates `wandb/` in it.
        project: The W&B project.
        run_name: The name of the run.
        id: Id of an existing run to continue; by default a new one.
        offline: Keep everything on disk for `wandb sync`; `None`: as `WANDB_MODE`.
        **init: Further arguments of `wandb.init`, such as `entity`, `group`, `tags`, `settings`.

    Raises:
        ConfigError: If there is no W&B key and no terminal to enter one.
    """

    name = "wandb"
    needs = "wandb"

    def __init__(
        self,
        directory: Path,
        project: str,
        run_name: str,
        *,
        id: str | None = None,
        offline: bool | None = None,
        **init: Any,
    ) -> None:
        options: dict[str, Any] = {"project": project, "run_name": run_name}
        options |= {"id": id, "offline": offline}
        plain = (bool, int, float, str, list, tuple, dict, type(None))
        options |= {name: value for name, value in init.items() if isinstance(value, plain)}
        super().__init__(directory, options, run=uuid.uuid4().hex[:8])
        self._init = {
            "project": re.sub(r"[/\\#?%:]", "_", project)[:128],
            "name": run_name,
            "id": id or self.note["run"],
            "resume": "allow",
            "reinit": "create_new",
            **({} if offline is None else {"mode": "offline" if offline else "online"}),
            **init,
        }
        if (self._init.get("mode") or os.environ.get("WANDB_MODE") or "online") == "online":
            import wandb

            # Here, where it may ask for a key, and not from a writer thread in mid-training.
            try:
                wandb.login(verify=False)
            except wandb.errors.UsageError as error:
                raise ConfigError(f"logger 'wandb': {error}") from error

    @property
    def address(self) -> str:
        """The run's page, if it is online and open."""
        return getattr(self._client, "url", None) or str(self.directory / "wandb")

    def connect(self) -> Mapping[str, int]:
        """Open the run; return the last step that was sent of each metric."""
        import wandb

        run = wandb.init(dir=str(self.directory), **self._init)
        run.define_metric("step")
        run.define_metric("*", step_metric="step")
        self._client = run
        return dict(self.note["sent"])

    def send_config(self, config: Mapping[str, Any]) -> None:
        self._client.config.update(config, allow_val_change=True)

    def send_values(self, rows: list[tuple[int, str, float]]) -> None:
        for step, some in itertools.groupby(rows, key=lambda row: row[0]):
            self._client.log({"step": step, **{name: value for _, name, value in some}})

    def send_file(self, path: Path, name: str, step: int) -> None:
        import wandb

        value: Any
        if path.suffix == ".txt":
            value = path.read_text(encoding="utf-8")
        elif path.suffix == ".png":
            value = wandb.Image(str(path))
        else:
            value = wandb.Video(str(path), format="gif")
        self._client.log({"step": step, name: value})

    def finish(self, status: str) -> None:
        """Finish the run with exit code 0, 1 (failed) or 255 (interrupted)."""
        self._client.finish(exit_code=_EXIT_CODE.get(status, 0))

    def how_to_view(self) -> str:
        url = getattr(self._client, "url", None)
        return url or f"wandb sync {shell_word(self.directory / 'wandb')}/*run-*"
