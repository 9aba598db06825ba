"""`pin_kernels` and ``--deterministic``: the same bits on processors of one vendor with AVX2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hooktrainer import pin_kernels
from hooktrainer.algorithms import PPO
from hooktrainer.base.kernels import PINNED
from hooktrainer.errors import ConfigError
from hooktrainer.show.results.result_rows import changed, surroundings

TINY = {"env": "CartPole-v1", "tuned": False, "total_frames": 64, "num_envs": 2}
TRAIN = ["train", "ppo", "--env", "CartPole-v1", "--no-tuned", "--total-frames", "64"]
TRAIN += ["--num-envs", "2", "--steps-per-batch", "16", "--num-epochs", "1"]
TRAIN += ["--eval-episodes", "0", "--no-progress-bar", "--logger", "csv"]
# What a process computes with; the libraries have read their variables when they were loaded.
PROBE = """
import os, sys
import hooktrainer
assert "torch" not in sys.modules and "numpy" not in sys.modules
hooktrainer.pin_kernels()
import torch
assert torch.get_num_threads() == 1
assert torch.backends.cpu.get_cpu_capability() != "AVX512"
from numpy._core._multiarray_umath import __cpu_features__ as features
assert not any(features.get(name) for name in ("X86_V4", "AVX512_ICL", "AVX512_SPR"))
hooktrainer.pin_kernels()  # again
"""


def python(*words, **options):
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def test_kernels_are_chosen_before_they_are_loaded():
    done = python("-c", PROBE)
    assert done.returncode == 0, done.stderr


def test_it_is_too_late_once_torch_has_chosen(monkeypatch):
    for name in PINNED:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="numpy and torch chose their kernels when imported"):
        pin_kernels()
    with pytest.raises(ConfigError, match="hooktrainer train NAME --deterministic"):
        PPO(**TINY, deterministic=True).trainer()


def test_a_process_that_began_pinned_is_accepted(monkeypatch):
    for name, value in PINNED.items():
        monkeypatch.setenv(name, value)
    PPO(**TINY, deterministic=True, progress_bar=False).trainer().shutdown()


@pytest.mark.slow
def test_the_command_pins_them_for_a_run_its_repetition_and_its_resume(tmp_path):
    run = tmp_path / "run"
    module = ("-m", "hooktrainer")
    done = python(*module, *TRAIN, "--deterministic", "--run-dir", run)
    assert done.returncode == 0, done.stderr
    assert "deterministic: true\n" in (run / "config.yaml").read_text()
    config = run / "config.yaml"
    again = python(*module, "train", "--config", config, "--run-dir", tmp_path / "again")
    assert again.returncode == 0, again.stderr
    on = python(*module, "resume", run, "--", "--total-frames", "128")
    assert on.returncode == 0, on.stderr


def test_only_the_processor_differs_from_a_run_that_is_not_deterministic():
    here = surroundings(deterministic=True)
    assert changed(here, surroundings(deterministic=True)) == []
    assert [each.split()[0] for each in changed(surroundings(), here)] == ["processor"]


def test_only_the_vendor_of_the_processor_matters_to_a_deterministic_run(monkeypatch):
    def at(vendor, model, kernels, **options):
        text = f"vendor_id\t: {vendor}\ncpu family\t: 6\nmodel\t\t: {model}\nmodel name\t: Chip\n"
        with monkeypatch.context() as patch:
            patch.setattr(Path, "read_text", lambda *_, **__: text)
            patch.setattr("torch.backends.cpu.get_cpu_capability", lambda: kernels)
            patch.setattr("importlib.metadata.version", lambda _: "1.0")
            return surroundings(**options)

    intel, new = ("GenuineIntel", 85, "AVX2"), ("GenuineIntel", 167, "AVX512")
    assert at(*intel)["processor"] == "Chip, family 6, model 85, AVX2"
    assert at(*intel, deterministic=True)["processor"] == "any Intel with AVX2"
    assert at(*intel, deterministic=True) == at(*new, deterministic=True)
    amd = at("AuthenticAMD", 17, "AVX2", deterministic=True)
    assert changed(amd, at(*new, deterministic=True)) == [
        "processor any Intel with AVX2 in place of any AMD with AVX2"
    ]
    old = at("GenuineIntel", 42, "DEFAULT", deterministic=True)
    assert old["processor"] == "Chip, family 6, model 42, DEFAULT"
