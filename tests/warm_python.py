"""A Python that has imported what programs of this package import, and so begins at once.

`executable` is a program that takes what ``python`` takes. It hands its words, directory,
environment and open files to a server, which forks; it passes signals on, and ends as the fork
does. What is started with it is as with `sys.executable`, but for its number, group and session.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import multiprocessing.spawn
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

HERE = Path(__file__).parent
_HIGH = 512  # above all numbers of files that programs are given


_SHARED = "HOOKTRAINER_TESTS_WARM_PYTHON"  # the program that all processes of pytest-xdist have


def share() -> None:
    """Start the server for this process and its children."""
    os.environ[_SHARED] = executable()


@cache
def executable(*modules: str) -> str:
    """The program's path; its server ends with this process. Python itself where that cannot be.

    Args:
        modules: What it imports beside `warm`.
    """
    if not hasattr(os, "pidfd_open"):
        return sys.executable
    if not modules and _SHARED in os.environ:
        return os.environ[_SHARED]
    folder = tempfile.TemporaryDirectory(prefix="warm-python-")
    address, program = Path(folder.name, "socket"), Path(folder.name, "python")
    program.write_text(
        f"#!{sys.executable} -SIB\nimport sys\nsys.path.insert(0, {str(HERE)!r})\n"
        f"from warm_client import main\nmain({str(address)!r}, {sys.executable!r})\n"
    )
    program.chmod(0o700)
    server = subprocess.Popen(
        [sys.executable, __file__, str(address), str(program), *modules],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # a signal to all that tests run is for the programs
    )
    stdin, stdout = server.stdin, server.stdout
    assert stdin is not None
    assert stdout is not None
    assert stdout.readline() == b"ready\n"
    stdout.close()

    def end() -> None:
        stdin.close()
        server.wait()
        folder.cleanup()

    atexit.register(end)
    return str(program)


def run(script: Path | str, *words: object, where: Path) -> subprocess.CompletedProcess[str]:
    """What a program prints, and how it ends.

    Args:
        script: The program's file, or ``-m``.
        *words: Its arguments.
        where: Its working directory.
    """
    command = [executable(), str(script), *map(str, words)]
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": 300}
    return subprocess.run(command, cwd=where, text=True, check=False, **options)


class Request:
    """What a program is to be.

    Args:
        connection: To the client, which has just connected.
    """

    def __init__(self, connection: socket.socket) -> None:
        data, files, _, _ = socket.recv_fds(connection, 1 << 16, 250)
        size = int.from_bytes(data[:8], "little")
        while len(data) < 8 + size:
            if not (more := connection.recv(1 << 20)):
                raise ConnectionAbortedError
            data += more
        asked = json.loads(data[8:])
        self.files = files
        self.numbers: list[int] = asked["numbers"]
        self.options: list[str] = asked["options"]
        self.words: list[str] = asked["words"]
        self.where: str = asked["where"]
        self.environ: dict[str, str] = asked["environ"]

    def take_files(self) -> None:
        """Have the client's open files, by their numbers, and no others."""
        high = [fcntl.fcntl(file, fcntl.F_DUPFD, _HIGH) for file in self.files]
        os.closerange(0, _HIGH)
        for file, number in zip(high, self.numbers, strict=True):
            os.dup2(file, number)
        os.closerange(_HIGH, _HIGH + 2 * len(high))
        is_direct = "-u" in self.options or "PYTHONUNBUFFERED" in self.environ
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            if number in self.numbers:
                mode, buffering = (
                    ("w", 1 if number == 2 or is_direct else -1) if number else ("r", -1)
                )
                stream = open(number, mode, buffering, closefd=False)  # noqa: SIM115
                setattr(sys, name, stream)
                setattr(sys, f"__{name}__", stream)

    def take_place(self, base: Sequence[str]) -> None:
        """Have the client's directory, environment and options, and a group of one's own.

        Args:
            base: Where Python looks for modules at last.
        """
        os.setsid()
        os.chdir(self.where)
        os.environ.clear()
        os.environ.update(self.environ)
        if ignored := [
            x[2:] or self.options[i + 1] for i, x in enumerate(self.options) if x.startswith("-W")
        ]:
            sys.warnoptions.extend(ignored)
            warnings._processoptions(ignored)  # type: ignore[attr-defined]
        sys.path[:] = [*filter(None, self.environ.get("PYTHONPATH", "").split(os.pathsep)), *base]
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed()

    def run(self) -> None:
        """Be the program."""
        kind, *rest = self.words
        is_safe = "PYTHONSAFEPATH" in self.environ
        if kind == "-m":
            sys.argv = rest
            sys.path[:0] = [] if is_safe else [os.getcwd()]
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        elif kind == "-c":
            sys.argv = ["-c", *rest[1:]]
            sys.path[:0] = [] if is_safe else [""]
            module = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(rest[0], "<string>", "exec"), vars(module))
        else:
            sys.argv = self.words
            sys.path[:0] = [] if is_safe else [str(Path(kind).parent.resolve())]
            module = sys.modules["__main__"] = types.ModuleType("__main__")
            module.__file__ = str(Path(kind).absolute())
            exec(compile(Path(kind).read_bytes(), kind, "exec"), vars(module))


def serve(address: str, modules: Sequence[str]) -> Request:
    """Fork for every request until standard input ends; returns in a fork, with its request."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(64)
    os.write(1, b"ready\n")  # for programs, which wait until it has imported
    for name in (*modules, "warm"):
        importlib.import_module(name)
    gc.freeze()  # what is never looked at again is never copied
    watched = selectors.DefaultSelector()
    watched.register(0, selectors.EVENT_READ)
    watched.register(listening, selectors.EVENT_READ)
    children: dict[socket.socket, tuple[int, int]] = {}
    while True:
        for key, _ in watched.select():
            found: Any = key.fileobj
            if found == 0:
                for pid, _ in children.values():
                    os.kill(pid, signal.SIGKILL)
                sys.exit()
            elif found is listening:
                connection, _ = listening.accept()
                try:
                    request = Request(connection)
                except (OSError, ValueError):  # the client was killed
                    connection.close()
                    continue
                pid = os.fork()
                if pid == 0:
                    # Garbage that is found later would close files of the program by their numbers.
                    for own in (watched, listening, connection, *children):
                        own.close()
                    return request
                for file in request.files:
                    os.close(file)
                children[connection] = pid, os.pidfd_open(pid)
                watched.register(connection, selectors.EVENT_READ)
                watched.register(children[connection][1], selectors.EVENT_READ, connection)
            elif (
                key.data is None and found in children
            ):  # a signal; nothing if the client was killed
                try:
                    number = found.recv(1)
                except OSError:
                    number = b""
                os.kill(children[found][0], number[0] if number else signal.SIGKILL)
                if not number:
                    watched.unregister(found)
            elif key.data in children:
                pid, handle = children.pop(key.data)
                watched.unregister(handle)
                os.close(handle)
                if key.data in watched.get_map():
                    watched.unregister(key.data)
                _, status = os.waitpid(pid, 0)
                with suppress(OSError):  # from a client that was killed
                    key.data.sendall(status.to_bytes(4, "little"))
                key.data.close()


def end(run: Callable[[], None]) -> NoReturn:
    """Run, and end as Python does, but for the taking apart of all modules, which takes seconds."""
    code = 0
    try:
        run()
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
        if isinstance(exit.code, str):
            print(exit.code, file=sys.stderr)
    except BaseException as error:
        found = sys.last_type, sys.last_value, sys.last_traceback = sys.exc_info()
        sys.excepthook(*found)
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    behind = len([*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]) + 1
    base = sys.path[behind:]
    address, program, *modules = sys.argv[1:]
    request = serve(address, modules)
    sys.executable = program  # not before: what is imported may start Python, and wait for itself
    request.take_files()
    request.take_place(base)
    multiprocessing.spawn.set_executable(program)
    end(request.run)
