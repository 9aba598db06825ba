"""A run with one of TorchRL's collectors in processes, to be ended by a signal.

Arguments: the file it saves to, its total frames, which collector, where it spends its time.
It says first which process group it leads.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from pathlib import Path

warnings.filterwarnings("ignore", module="torchrl")

import torch  # noqa: E402
import torchrl.trainers as theirs  # noqa: E402
from torch import nn  # noqa: E402
from torchrl.collectors import MultiAsyncCollector, MultiSyncCollector  # noqa: E402
from torchrl.envs import GymEnv  # noqa: E402
from torchrl.modules import QValueActor  # noqa: E402
from torchrl.objectives import DQNLoss  # noqa: E402

from hooktrainer import Trainer, UpdateWeights  # noqa: E402


def main(file: Path, total_frames: int, kind: str, place: str) -> None:
    print(os.getpid(), flush=True)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.multiprocessing.set_start_method("fork", force=True)  # spawned ones import anew
    actor = QValueActor(nn.Linear(4, 2), in_keys=["observation"], action_space="one-hot")
    collector = {"sync": MultiSyncCollector, "async": MultiAsyncCollector}[kind](
        [lambda: GymEnv("CartPole-v1")] * 2, actor, frames_per_batch=40, total_frames=-1
    )
    loss = DQNLoss(actor, action_space="one-hot", delay_value=False)
    trainer = Trainer(
        collector=collector,
        total_frames=total_frames,
        optim_steps_per_batch=1,
        loss_module=loss,
        optimizer=torch.optim.Adam(loss.parameters()),
        progress_bar=False,
        save_trainer_file=file,
        save_trainer_interval=10**9,
    )
    hook = theirs.UpdateWeights if kind == "async" else UpdateWeights
    hook(collector, 1).register(trainer)
    if file.exists():
        trainer.load_from_file(file)
        print("loaded", trainer.collected_frames, flush=True)

    def dwell() -> None:
        print("optimizing", trainer.collected_frames, flush=True)
        time.sleep(0.5 if place == "optimize" else 0.0)

    trainer.register_op("post_optim", dwell)
    trainer.train()
    print("ended", trainer.collected_frames, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
