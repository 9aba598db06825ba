"""Ctrl-C before a command has begun anything: the end, without a traceback."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from hooktrainer.base.endings import interruptible

INTERRUPTING = """
import os, runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored here
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            sys.meta_path.remove(self)
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except BaseException:  # as an extension does that is being initialized
                pass
sys.meta_path.insert(0, Interrupting())
"""
COMMAND = "from hooktrainer.cli import main; main(['runs'])"
ALGORITHM = "from hooktrainer.cli import main; main(['train', 'ppo'])"


@pytest.mark.parametrize(
    ("program", "module", "code", "said"),
    [
        (COMMAND, "tyro", -signal.SIGINT, ""),
        (COMMAND, "hooktrainer.store.run_dir", -signal.SIGINT, ""),
        (ALGORITHM, "hooktrainer.loop.signals", -signal.SIGINT, ""),
        (
            ALGORITHM,
            "hooktrainer.algorithms",
            128 + signal.SIGINT,
            "\nSIGINT: ended; no batch was under way.\n",
        ),
    ],
)
def test_an_interrupt_during_an_import_is_the_end(program, module, code, said, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", INTERRUPTING + program, module],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", said)


def test_elsewhere_an_interrupt_is_an_exception_and_the_handler_is_put_back():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), interruptible():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with interruptible():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
