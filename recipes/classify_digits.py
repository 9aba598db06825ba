"""A small convolutional network learns to read digits that are drawn here.

    python recipes/classify_digits.py --seed 1

Supervised learning: epochs over a data set, gradients accumulated over sub-batches, and validation
of averaged weights. A run that is killed goes on bit for bit with --resume latest.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from tensordict import TensorDict, TensorDictBase
from torch import nn

from hooktrainer import AverageWeights, DataCollector, Trainer, Validate
from hooktrainer.run import FreeOnResume, Run, RunConfig, launch
from hooktrainer.store import Best

DIGITS = ("75557", "26227", "71747", "71717", "55711", "74717", "74757", "71222", "75757", "75717")
"""Rows of 3 pixels, as the bits of a number."""


@dataclass(frozen=True, kw_only=True)
class Args(RunConfig):
    """Options of the run."""

    epochs: FreeOnResume[int] = 8
    """passes over the training set"""
    total_frames: int | None = None
    """images after which the run ends; by default those of all epochs"""
    batch_size: int = 32
    """images in a sub-batch"""
    accumulate: int = 2
    """sub-batches for an optimizer step"""
    lr: float = 3e-3
    """learning rate"""


def draw_digits(number: int, seed: int) -> TensorDict:
    """Draw images ``[1, 8, 8]``: a digit of 5 x 3 pixels somewhere, under noise."""
    drawn = torch.Generator().manual_seed(seed)
    rows = torch.tensor([[int(row) for row in digit] for digit in DIGITS]).unsqueeze(-1)
    pixels = (rows >> torch.tensor([2, 1, 0]) & 1).float()
    label = torch.randint(10, (number,), generator=drawn)
    image = 0.25 * torch.randn(number, 1, 8, 8, generator=drawn)
    down, right = (torch.randint(most, (number, 1, 1), generator=drawn) for most in (4, 6))
    place = (torch.arange(number).view(-1, 1, 1), 0, down + torch.arange(5).view(5, 1))
    image[(*place, right + torch.arange(3))] += pixels[label]
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
        loss = nn.functional.cross_entropy(logits, label)
        return TensorDict({"loss": loss, "accuracy": (logits.argmax(-1) == label).float()})


def main(args: Args) -> None:
    torch.manual_seed(args.seed)
    run = Run(args, "classify_digits", best=Best(1, "val/loss", "min"))
    loss_module = Classifier().to(run.device)
    digits = draw_digits(4_000, seed=1)
    trainer = Trainer(
        collector=DataCollector(digits, args.batch_size, epochs=args.epochs, device=run.device),
        total_frames=args.total_frames,
        optim_steps_per_batch=1,
        loss_module=loss_module,
        optimizer=torch.optim.AdamW(loss_module.parameters(), lr=args.lr),
        accumulate=args.accumulate,
        **run.trainer_options,
    )
    weights = AverageWeights(loss_module, decay=0.99)
    weights.register(trainer)
    Validate(draw_digits(1_000, seed=2), batch_size=500, weights=weights).register(trainer)
    run.train(trainer)
    print(f"accuracy on new digits: {trainer.metrics.reported.get('val/accuracy', 0):.1%}")


if __name__ == "__main__":
    launch(main)
