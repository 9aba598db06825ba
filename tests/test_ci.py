"""What is skipped is said, and fails the build unless it may be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CI = Path(__file__).parents[1] / ".ci"

RESULTS = """<testsuites><testsuite name="pytest">
<testcase classname="tests.test_a" name="test_runs" time="1" />
<testcase classname="tests.{module}" name="{name}"><skipped message="not here" /></testcase>
</testsuite></testsuites>"""


@pytest.mark.parametrize(
    ("module", "name", "code"),
    [("collect.test_envpool", "test_envpool_itself", 0), ("test_a", "test_b", 1)],
)
def test_a_skip_that_is_not_allowed_fails_the_build(tmp_path, module, name, code):
    results = tmp_path / "results.xml"
    results.write_text(RESULTS.format(module=module, name=name))
    done = subprocess.run(
        [sys.executable, CI / "check_skips.py", results], capture_output=True, text=True
    )
    assert done.returncode == code, done.stdout
    assert f"tests.{module}::{name}: not here" in done.stdout


def test_every_allowed_skip_is_a_test():
    lines = (CI / "skips.txt").read_text().splitlines()
    names = [line.split()[0] for line in lines if line and not line.startswith("#")]
    for name in names:
        module, test = name.split("::")
        file = CI.parent / (module.replace(".", "/") + ".py")
        assert f"def {test.split('[')[0]}(" in file.read_text()
