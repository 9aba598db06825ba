"""A new hook, algorithm, command, logger and back end is one file and one line each.

In a copy of the tree one of each is added, and the tests that find every one by themselves are run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

HOOK = '''
"""Counts batches."""

from ..loop.hook import TrainerHookBase


class CountBatches(TrainerHookBase):
    """Counts batches."""

    at = "pre_steps_log"
    saved_attributes = ("batches",)

    def __init__(self):
        self.batches = 0

    def __call__(self, batch):
        """Count the batch."""
        self.batches += 1
        return {"train/batches": self.batches}
'''

ALGORITHM = '''
"""PPO that clips less."""

from .algorithm import algorithm
from .ppo import PPO


@algorithm
class LOOSE(PPO):
    """PPO that clips less."""

    clip_epsilon: float = 0.5
    """clipping range of the probability ratio around 1"""
'''

COMMAND = '''
def greet(name: str, /) -> int:
    """Say hello.

    Args:
        name: to whom
    """
    print(f"hello {name}")
    return 0
'''

BACKEND = """
from . import TorchBackend


class EchoBackend(TorchBackend):
    name = "echo"
"""

LOGGER = """
from .sink import Sink


class LinesSink(Sink):
    name = "lines"

    def __init__(self, directory):
        super().__init__()
        self.file = directory / "metrics.txt"

    def write_scalars(self, values, step):
        with self.file.open("a") as file:
            file.writelines(f"{step} {n} {v}\\n" for n, v in values.items())

    def flush(self):
        pass
"""

ADDED = {
    "log/lines.py": LOGGER,
    "hooks/count_batches.py": HOOK,
    "algorithms/loose.py": ALGORITHM,
    "cli/greet.py": COMMAND,
    "store/backends/echo.py": BACKEND,
}
LINES = {
    "log/sink.py": ('    "mlflow": "mlf', '    "lines": "lines:LinesSink",\n'),
    "hooks/__init__.py": (
        "    from .clear_cuda_cache import",
        "    from .count_batches import CountBatches as CountBatches\n",
    ),
    "algorithms/__init__.py": ("from .mbpo import", "from .loose import LOOSE as LOOSE\n"),
    "cli/commands.py": ('    "watch": "watch:watch",', '    "greet": "greet:greet",\n'),
    "store/backends/__init__.py": ('    "native": "nat', '    "echo": "echo:EchoBackend",\n'),
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree, with one more of each."""
    tree = tmp_path_factory.mktemp("house")
    leave = shutil.ignore_patterns("__pycache__", "_recipes")
    for name in ("hooktrainer", "tests", "docs", "recipes", "benchmarks"):
        shutil.copytree(ROOT / name, tree / name, ignore=leave)
    for name in ("pyproject.toml", "mkdocs.yml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, tree)
    (tree / "tests/hooks/test_count_batches.py").write_text('"""Its own tests."""\n')
    (tree / "tests/test_uses.py").write_text(USES)
    for name, text in ADDED.items():
        (tree / "hooktrainer" / name).write_text(text.lstrip())
    for name, (before, line) in LINES.items():
        file = tree / "hooktrainer" / name
        text = file.read_text()
        assert text.count(before) == 1
        file.write_text(text.replace(before, line + before))
    return tree


USES = '''
"""Uses each of them, as a program would."""

from hooktrainer import CountBatches, algorithms, get_logger
from hooktrainer.cli import main
from hooktrainer.store import known_backends


def test_each_can_be_used(tmp_path, capsys):
    assert CountBatches()(None) == {"train/batches": 1}
    assert algorithms.LOOSE(env="X", total_frames=1).clip_epsilon == 0.5
    assert main(["greet", "you"]) == 0
    assert capsys.readouterr().out == "hello you\\n"
    assert "echo" in known_backends()
    logger = get_logger("lines", tmp_path, "first")
    logger.log_scalar("a", 1.5, 3)
    logger.close()
    assert (tmp_path / "first/metrics.txt").read_text() == "3 a 1.5\\n"
'''

TESTS = {
    "hooks/test_conformance.py": ["CountBatches", "listed", "every_hook"],
    "algorithms/test_algorithms.py": ["loose"],
    "algorithms/test_description.py": ["LOOSE"],
    "cli/test_cli.py": ["greet", "every"],
    "store/test_backends.py": ["echo"],
    "test_uses.py": ["each_can_be_used"],
    "test_docs.py": ["every_command", "every_public", "of_the_architecture"],
}


@pytest.mark.slow
def test_it_can_be_used_and_the_tests_find_it_by_themselves(copy: Path) -> None:
    """All of them in one process, which takes as long to start as they take."""
    some = [f"({Path(file).stem} and ({' or '.join(names)}))" for file, names in TESTS.items()]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-vv"]
        + [f"tests/{file}" for file in TESTS]
        + ["-k", " or ".join(some)],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    for file, names in TESTS.items():
        ran = re.findall(rf"^tests/{file}::(\S+) PASSED", done.stdout, re.MULTILINE)
        assert [name for name in names if not any(name.lower() in r.lower() for r in ran)] == []
