"""Programs with TorchRL's collectors of several processes train, save, resume and end."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os
import sys
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl import collectors
from torchrl.envs import GymEnv
from hooktrainer.testing import tiny_trainer

def env():
    return GymEnv("Pendulum-v1")

if __name__ == "__main__":
    kind, file, frames = sys.argv[1:]
    policy = TensorDictModule(nn.Linear(3, 1), ["observation"], ["action"])
    # Names of a module are only dropped when Python ends.
    collector = getattr(collectors, kind)([env, env], policy, frames_per_batch=10, total_frames=-1)
    trainer = tiny_trainer(
        collector=collector,
        total_frames=int(frames),
        save_trainer_file=file,
        save_trainer_interval=20,
    )
    if os.path.exists(file):
        trainer.load_from_file(file)
    trainer.train()
    print(trainer.collected_frames)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["MultiSyncCollector", "MultiAsyncCollector"])
def test_they_end_after_many_checkpoints(kind, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    for frames in ("100", "200"):
        command = [sys.executable, "-W", "ignore", program, kind, tmp_path / "state.pt", frames]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        assert done.stdout.split() == [frames]
