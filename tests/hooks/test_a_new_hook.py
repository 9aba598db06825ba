"""A new hook is one file and one line: in a copy of the package, with nothing else touched."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

HOOK = '''"""Count batches."""

from ..loop.hook import TrainerHookBase


class BatchCounter(TrainerHookBase):
    """Counts batches."""

    count = 0

    def __call__(self):
        """Count one."""
        self.count += 1

    def register(self, trainer, name="batch_counter"):
        """Register at ``post_steps``."""
        trainer.register_module(name, self)
        trainer.register_op("post_steps", self)

    def state_dict(self):
        """Return the count."""
        return {"count": self.count}

    def load_state_dict(self, state_dict):
        """Restore the count."""
        self.count = state_dict["count"]
'''


def test_it_is_one_file_and_one_line(tmp_path):
    shutil.copytree(ROOT / "hooktrainer", tmp_path / "hooktrainer")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    hooks = tmp_path / "hooktrainer" / "hooks"
    (hooks / "batch_counter.py").write_text(HOOK)
    line = "    from .batch_sub_sampler import"
    names = (hooks / "__init__.py").read_text()
    assert line in names
    more = f"    from .batch_counter import BatchCounter as BatchCounter\n{line}"
    (hooks / "__init__.py").write_text(names.replace(line, more, 1))
    code = (
        "import hooktrainer, runpy\n"
        "assert hooktrainer.BatchCounter is hooktrainer.available_hooks()['BatchCounter']\n"
        "page = runpy.run_path('docs/generate.py')['on_page_markdown']('<!-- hooks -->')\n"
        "assert '::: hooktrainer.BatchCounter' in page\n"
        "import pytest, sys\n"
        "tests = sys.argv[1]\n"
        "sys.exit(pytest.main([tests, '-q', '-k', 'BatchCounter', '-p', 'no:cacheprovider']))"
    )
    shutil.copytree(ROOT / "tests" / "hooks", tmp_path / "tests" / "hooks")
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path / "tests")
    tests = tmp_path / "tests" / "hooks"
    (tests / "test_batch_counter.py").write_text("# those of the new hook\n")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(tests / "test_conformance.py")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout
