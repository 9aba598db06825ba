"""The notebooks of the documentation, and runs that are interrupted, in a real kernel."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_is_kept_without_outputs(file: Path) -> None:
    cells = [c for c in json.loads(file.read_text())["cells"] if c["cell_type"] == "code"]
    assert cells
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells)


Execute = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def execute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Executes a cell in a kernel and returns its outputs; ``on_output`` gets the kernel too."""
    pytest.importorskip("ipykernel")
    manager = pytest.importorskip("jupyter_client.manager")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    kernel, client = manager.start_new_kernel(kernel_name="python3", cwd=str(tmp_path))

    def execute(code: str, on_output: Callable[[Any, Any], None] = lambda *_: None) -> Any:
        outputs: list[dict[str, Any]] = []

        def hook(message: Any) -> None:
            outputs.append(message["content"])
            on_output(kernel, message)

        reply = client.execute_interactive(code, output_hook=hook, timeout=600)["content"]
        assert reply["status"] == "ok", "\n".join(reply["traceback"])
        return outputs

    yield execute
    client.stop_channels()
    kernel.shutdown_kernel(now=True)


BEGIN = """
import os, time
import torch
import hooktrainer
from hooktrainer.algorithms import PPO

class Slow(hooktrainer.TrainerHookBase):
    at, is_saved, seconds = "post_steps", False, 0.3
    def __call__(self):
        time.sleep(self.seconds)

slow = Slow()
def run(place):
    return PPO(env="CartPole-v1", total_frames=64 * 100, num_envs=2, steps_per_batch=32,
        mini_batch_size=32, num_epochs=1, eval_interval=640, eval_episodes=1, num_cells=(8,),
        stop_at=None, logger="csv", seed=3, run_dir=place, workers=2, hooks=[slow])

first = run("a")
trainer = first.train()
"""
GO_ON = """
slow.seconds = 0
assert trainer.control.status == "interrupted", trainer
assert 0 < trainer.collected_frames < 6400, trainer
resumed, straight = first.resumed().train(), run("b").train()
pairs = zip(resumed.loss_module.parameters(), straight.loss_module.parameters(), strict=True)
assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
rows = [[row for row in open(f"{name}/metrics.csv") if ",time/" not in row] for name in "ab"]
assert rows[0] == rows[1]
print("equal", len(rows[0]))
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_interrupt_of_a_kernel_ends_the_cell_and_the_next_continues_bit_for_bit(execute):
    interrupts: list[str] = []

    def interrupt(kernel: Any, message: Any) -> None:
        shown = message["content"].get("data", {}).get("text/plain", "")
        if not interrupts and shown.startswith("running") and not shown.startswith("running · 0"):
            interrupts.append(shown)
            kernel.interrupt_kernel()

    outputs = execute(BEGIN, interrupt)
    assert interrupts
    text = "".join(output.get("text", "") for output in outputs)
    assert "continue it with .resumed().train() of this PPO." in text
    shown = [output["data"]["text/plain"] for output in outputs if "transient" in output]
    assert any(text.startswith("interrupted · ") for text in shown)
    text = "".join(output.get("text", "") for output in execute(GO_ON))
    assert "\nequal " in text


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs(file: Path, execute: Execute) -> None:
    shown: list[dict[str, str]] = []
    for cell in json.loads(file.read_text())["cells"]:
        if cell["cell_type"] == "code":
            outputs = execute("".join(cell["source"]))
            shown += [output["data"] for output in outputs if "data" in output]
    html = "".join(data.get("text/html", "") for data in shown)
    lines = [data["text/plain"] for data in shown if '"hooktrainer"' in data.get("text/html", "")]
    assert lines[0].startswith("running · 0 ")
    assert any(line.startswith("finished · ") for line in lines)
    assert '<polyline class="mean"' in html
    assert ("data:image/webp" in html) == (file.stem == "first_run")
