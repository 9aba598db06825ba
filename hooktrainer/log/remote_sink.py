"""`RemoteSink`: a sink whose destination is a server, and never waited for.

What is logged goes to a spool in the run's directory. A process of its own sends it from there and
tries again for as long as the run lasts, so neither a server's silence nor the import of its
client, nor its timeouts, are training's affair.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any, Final

from ..base.child_program import ChildProgram
from ..base.plain import flatten_config
from ..base.words import shell_word
from . import media
from .sink import HParams, Image, Scalars, Sink, Text, Video, log
from .spool import Spool

_LAST_ATTEMPT: Final = 2.0  # seconds at the end for a server that has not answered before
_RESTARTS: Final = 3

ADDRESS: Final = "HOOKTRAINER_SEND_TO"
"""The environment variable by which the process that sends is told where to."""


def public(uri: str) -> str:
    """An address without the name and the password in it.

    Examples:
        >>> public("https://me:secret@example.org/mlflow")
        'https://example.org/mlflow'
    """
    return re.sub(r"(?<=://)[^/@]*@", "", uri)


class RemoteSink(Sink):
    """Writes to the spool of a run, and has it sent.

    The position that a checkpoint holds is that in the spool: it is known without the server. On
    resume the spool is cut back to it; what was sent of the rest is taken back, see `sending`.

    Args:
        name: What the destination is called, a key of `sending.DESTINATIONS`.
        directory: Directory of the run.
        target: Where to send everything, as plain values, its `uri` among them. No secrets: it is
            written to a file.
        uri: The address with its secrets, for the process that sends.
    """

    closing = 30.0

    def __init__(self, name: str, directory: Path, target: Mapping[str, Any], uri: str) -> None:
        super().__init__()
        self.name = name
        self.directory = directory.absolute()
        self.spool = Spool(self.directory / "spool" / name)
        self._target = {"key": self.spool.key() or uuid.uuid4().hex, **target}
        self._uri = uri
        self._announced = False
        self._sender: _Sender | None = None
        self._starts = 0

    def write_scalars(self, event: Scalars) -> None:
        """Add the values of one step."""
        self.spool.add(event.step, metrics=dict(event.values))

    def write_hparams(self, event: HParams) -> None:
        """Add the configuration, flat."""
        self.spool.add(event.step, hparams=flatten_config(event.config))

    def write_text(self, event: Text) -> None:
        """Add a text as a file, `texts/<name>_<step>.txt`."""
        self._add_file("texts", event.name, event.step, ".txt", event.text.encode())

    def write_image(self, event: Image) -> None:
        """Add a picture as a file, `images/<name>_<step>.png`."""
        self._add_file("images", event.name, event.step, ".png", media.png(event.pixels))

    def write_video(self, event: Video) -> None:
        """Add a film as a file, `videos/<name>_<step>.gif`."""
        gif = media.gif(event.frames, event.fps)
        self._add_file("videos", event.name, event.step, ".gif", gif)

    def flush(self) -> None:
        """Write what was gathered to the spool, and see that it is being sent."""
        if self.spool.flush() or self._sender is not None:
            self._send()

    def sync(self) -> None:
        """Make the spool survive a power loss."""
        self.spool.sync()

    def close(self, status: str = "finished") -> None:
        """Note how the run ended, and wait, within bounds, until all is sent; say what is not."""
        self.flush()
        if self._sender is None:
            return
        self.spool.add(self.spool.position()["step"], end=status)
        self.spool.sync()
        self.spool.close()
        sender, self._sender, self._starts = self._sender, None, 0
        seconds = min(self.closing, self.deadline - 0.25 - monotonic())
        sender.finish(max(0.0, seconds))
        if unsent := self.spool.unsent():
            log.warning(
                "Logger %r: %d of %d records have not been sent to %s. To send them: hooktrainer "
                "sync %s",
                self.name,
                unsent,
                self.spool.count(),
                self._target["uri"],
                shell_word(_from_here(self.directory)),
            )

    def state_dict(self) -> dict[str, Any]:
        """The key by which the server knows the run, and the position in the spool."""
        self.flush()
        return {"key": self._target["key"], **self.spool.position()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue the saved run at the saved position."""
        if self._sender is not None:
            self._sender.kill()
            self._sender = None
        self._target["key"] = state_dict["key"]
        self._announced = False
        self.spool.rewind(state_dict)

    def state_at(self, step: int) -> dict[str, Any]:
        """The key and the step alone: the records up to that are kept."""
        return {"key": self._target["key"], "bytes": None, "crc32": 0, "time": None, "step": step}

    def after_fork(self) -> None:
        """Leave the parent's records and its sender to it."""
        self.spool.forget()
        self._sender = None

    def _add_file(self, folder: str, name: str, step: int, suffix: str, content: bytes) -> None:
        place = f"{folder}/{media.file_name(name, step, suffix)}"
        self.spool.add_file(step, place, content)

    def _send(self) -> None:
        if not self._announced:
            self.spool.write_target({"kind": self.name, **self._target})
            self._announced = True
        if self._sender is not None and self._sender.code is not None:
            if self._starts == _RESTARTS + 1:
                return
            self._sender = None
        if self._sender is None:
            self._starts += 1
            self._sender = _Sender(self.name, self.spool.directory, self._uri)

    def __getstate__(self) -> dict[str, Any]:
        self.flush()
        return {**self.__dict__, "_sender": None, "_starts": 0, "deadline": math.inf}

    def __repr__(self) -> str:
        return f"{self.name}: {self._target['uri']}"


class _Sender:
    """The program that sends a spool; a thread passes on what it has to say."""

    def __init__(self, name: str, spool: Path, uri: str) -> None:
        self._name = name
        self._is_failing = False
        self._program = ChildProgram(
            "hooktrainer.log.sending",
            str(spool),
            environ={ADDRESS: uri},
            nice=5,  # training comes first
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        thread = threading.Thread(target=self._listen, name=f"{name}-sender", daemon=True)
        thread.start()

    @property
    def code(self) -> int | None:
        """The exit code; `None` while it runs."""
        return self._program.code

    def finish(self, seconds: float) -> None:
        """Have it send what is left and end; it is killed if that takes too long.

        A server that does not answer gets one last attempt.
        """
        self._program.tell(b"finish")
        until = monotonic() + seconds
        hopeless = monotonic() + _LAST_ATTEMPT
        while monotonic() < (min(until, hopeless) if self._is_failing else until):
            if self._program.wait(0.05) is not None:
                break
        self.kill()

    def kill(self) -> None:
        """End it at once."""
        self._program.kill()

    def _listen(self) -> None:
        with self._program.output as lines:
            for line in lines:
                word = json.loads(line)
                if word["ok"] is not None:
                    self._is_failing = not word["ok"]
                log.warning("Logger %r: %s", self._name, word["text"])


def _from_here(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
