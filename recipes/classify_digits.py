"""A small convolutional network learns to read digits that are drawn here.

    python recipes/classify_digits.py --seed 1

Training on data in place of an environment: epochs, validation, gradients accumulated over
sub-batches, averaged weights, a learning rate that follows the validation loss. A run that is
killed goes on bit for bit with --resume latest.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from tensordict import TensorDict, TensorDictBase
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from hooktrainer import AverageWeights, DataCollector, LRSchedulerHook, Trainer, Validate
from hooktrainer.optim import parameter_groups
from hooktrainer.run.config import FreeOnResume
from hooktrainer.run.recipe import Run, RunConfig, launch
from hooktrainer.store import Best

FONT = ("75557", "26227", "71747", "71717", "55711", "74717", "74757", "71222", "75757", "75717")


@dataclass(frozen=True, kw_only=True)
class Args(RunConfig):
    """Options of the run."""

    epochs: FreeOnResume[int] = 8
    """passes over the training set"""
    total_frames: int | None = None
    """samples after which the run ends; by default all of the epochs"""
    samples: int = 4_000
    """images in the training set"""
    batch_size: int = 32
    """images in a sub-batch"""
    accumulate: int = 2
    """sub-batches for an optimizer step"""
    lr: float = 3e-3
    """learning rate at the start"""


def draw_digits(number: int, seed: int) -> TensorDict:
    """Draw images ``[1, 8, 8]``: a digit of 3 x 5 pixels somewhere, under noise."""
    drawn = torch.Generator().manual_seed(seed)
    rows = torch.tensor([[int(row) for row in digit] for digit in FONT])
    glyphs = (rows.unsqueeze(-1) >> torch.tensor([2, 1, 0]) & 1).float()
    label = torch.randint(10, (number,), generator=drawn)
    image = 0.25 * torch.randn(number, 1, 8, 8, generator=drawn)
    down = torch.randint(4, (number, 1, 1), generator=drawn) + torch.arange(5).view(1, 5, 1)
    right = torch.randint(6, (number, 1, 1), generator=drawn) + torch.arange(3)
    image[torch.arange(number).view(-1, 1, 1), 0, down, right] += glyphs[label]
    return TensorDict({"image": image, "label": label}, [number])


class Classifier(nn.Module):
    """Maps a batch to the cross entropy, which is minimized, and the accuracy, which is logged."""

    def __init__(self) -> None:
        super().__init__()
        convolutions = nn.Conv2d(1, 24, 3), nn.ReLU(), nn.Conv2d(24, 64, 3), nn.ReLU()
        pool = nn.AdaptiveMaxPool2d(1), nn.Flatten()
        self.net = nn.Sequential(*convolutions, *pool, nn.Dropout(0.1), nn.Linear(64, 10))

    def forward(self, batch: TensorDictBase) -> TensorDict:
        logits, label = self.net(batch["image"]), batch["label"]
        accuracy = (logits.argmax(-1) == label).float().mean()
        return TensorDict(
            {"loss": nn.functional.cross_entropy(logits, label), "accuracy": accuracy}
        )


def main(args: Args) -> None:
    torch.manual_seed(args.seed)
    run = Run(args, "classify_digits", best=Best(1, "val/loss", "min"))
    loss_module = Classifier().to(run.device)
    groups = parameter_groups(loss_module, {"*.bias": {"weight_decay": 0.0}})
    optimizer = torch.optim.AdamW(groups, lr=args.lr, weight_decay=0.01)
    train, validation = draw_digits(args.samples, seed=1), draw_digits(1_000, seed=2)
    trainer = Trainer(
        collector=DataCollector(train, args.batch_size, epochs=args.epochs, device=run.device),
        total_frames=args.total_frames,
        optim_steps_per_batch=1,
        loss_module=loss_module,
        optimizer=optimizer,
        accumulate=args.accumulate,
        **run.trainer_options,
    )
    weights = AverageWeights(loss_module, decay=0.99)
    weights.register(trainer)
    plateau = ReduceLROnPlateau(optimizer, factor=0.3, patience=1)
    LRSchedulerHook(plateau, monitor="val/loss").register(trainer)
    Validate(validation.to(run.device), batch_size=500, weights=weights).register(trainer)
    run.train(trainer)
    print(f"accuracy on new digits: {trainer.metrics.reported.get('val/accuracy', 0):.1%}")


if __name__ == "__main__":
    launch(main)
