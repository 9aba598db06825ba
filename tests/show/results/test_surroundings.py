"""What bits depend on."""

from __future__ import annotations

import torch

from hooktrainer.show.results.result_rows import changed, surroundings


def test_it_names_the_processor_and_what_computes():
    here = surroundings(["hooktrainer-that-is-not-there"])
    assert here["torch"] == torch.__version__
    assert here["processor"].endswith(torch.backends.cpu.get_cpu_capability())
    assert here["hooktrainer-that-is-not-there"] == "not installed"
    assert here == surroundings(["hooktrainer-that-is-not-there"])
    assert {"system", "numpy", "gymnasium"} <= {*here}


def test_what_changed_is_said():
    there = {"torch": "2.13.0", "system": "Linux", "numpy": "2"}
    assert changed(there, {**there, "mujoco": "3"}) == []
    assert changed(there, {"torch": "2.14.0", "system": "Linux"}) == [
        "torch 2.14.0 in place of 2.13.0",
        "numpy unknown in place of 2",
    ]
