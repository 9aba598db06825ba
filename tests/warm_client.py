"""What `warm_python.executable` runs: asks a server to be the program in its place."""

import json
import os
import signal
import socket
import sys
from typing import NoReturn

_SIGNALS = ("SIGHUP", "SIGINT", "SIGTERM", "SIGQUIT", "SIGUSR1", "SIGUSR2")


def main(address: str, python: str) -> NoReturn:
    """Be as ``python`` with this process's words; what a server cannot do, ``python`` does.

    Args:
        address: The server's socket.
        python: The interpreter.
    """
    words, options = sys.argv[1:], []
    while words and words[0] in ("-u", "-B", "-W"):
        number = 1 + (words[0] == "-W")
        options += words[:number]
        words = words[number:]
    if not words or (words[0].startswith("-") and words[0] not in ("-c", "-m")):
        os.execv(python, [python, *sys.argv[1:]])
    numbers = [number for number in map(int, os.listdir("/proc/self/fd")) if _is_open(number)]
    server = socket.socket(socket.AF_UNIX)
    server.connect(address)
    asked = {"numbers": numbers, "options": options, "words": words, "where": os.getcwd()}
    data = json.dumps({**asked, "environ": dict(os.environ)}).encode()
    for name in _SIGNALS:
        if signal.getsignal(number := getattr(signal, name)) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: server.send(bytes([number])))
    sent = socket.send_fds(server, [len(data).to_bytes(8, "little")], numbers)
    assert sent == 8
    server.sendall(data)
    for number in numbers:
        os.close(number)  # the program's own, whose end others may wait for
    status = int.from_bytes(server.recv(4) or (9).to_bytes(4, "little"), "little")
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if code != -signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    os._exit(code)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
