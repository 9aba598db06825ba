"""GPT-2, or another causal language model of transformers, is fine-tuned on a text.

    python recipes/finetune_gpt2.py --data book.txt --model openai-community/gpt2 --lr 3e-5

Needs pip install 'hooktrainer[transformers]'. --resume latest continues a killed run bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics

import torch
from tensordict import TensorDict

from hooktrainer import DataCollector, Trainer, Validate
from hooktrainer.networks import TransformersModel
from hooktrainer.objectives import SFTLoss
from hooktrainer.run import FreeOnResume, Run, RunConfig, launch
from hooktrainer.store import Best


@dataclass(frozen=True, kw_only=True)
class Args(RunConfig):
    """Options of the run."""

    model: str = "tiny"
    """name or directory of a model; tiny: GPT-2 with two narrow layers, which reads bytes"""
    data: Path | None = None
    """text file with a document on each line; by default a part of Python's documentation"""
    epochs: FreeOnResume[int] = 4
    """passes over the text"""
    total_frames: int | None = None
    """blocks after which the run ends; by default those of all epochs"""
    block: int = 64
    """tokens in a block"""
    batch_size: int = 8
    """blocks in a sub-batch"""
    accumulate: int = 2
    """sub-batches for an optimizer step"""
    lr: float = 3e-3
    """learning rate"""


def make_model(args: Args) -> TransformersModel:
    if args.model != "tiny":
        return TransformersModel.from_pretrained(args.model)
    from transformers import ByT5Tokenizer, GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": 259, "n_positions": args.block, "n_embd": 64, "n_layer": 2, "n_head": 4}
    config = GPT2Config(**sizes, bos_token_id=1, eos_token_id=1)
    return TransformersModel(GPT2LMHeadModel(config), ByT5Tokenizer(extra_ids=0))


def read_blocks(args: Args, model: TransformersModel) -> TensorDict:
    """Join documents, each with the token of its end, and cut them into ``[blocks, block]``."""
    documents = args.data.read_text().splitlines() if args.data else list(topics.values())[:12]
    encode, end = model.tokenizer.encode, [model.tokenizer.eos_token_id]
    joined = [t for text in documents for t in encode(text, add_special_tokens=False) + end]
    tokens = torch.tensor(joined).unfold(0, args.block, args.block)
    blocks = {"tokens": tokens, "length": torch.full_like(tokens[:, 0], args.block)}
    return TensorDict({**blocks, "sampled": torch.ones_like(tokens).bool()}, [len(tokens)])


def main(args: Args) -> None:
    torch.manual_seed(args.seed)
    run = Run(args, "finetune_gpt2", best=Best(1, "val/loss", "min"))
    loss_module = SFTLoss(make_model(args)).to(run.device)
    blocks = read_blocks(args, loss_module.model).to(run.device)
    cut = 9 * len(blocks) // 10  # the last tenth is held out
    trainer = Trainer(
        collector=DataCollector(blocks[:cut], args.batch_size, epochs=args.epochs),
        total_frames=args.total_frames,
        optim_steps_per_batch=1,
        loss_module=loss_module,
        optimizer=torch.optim.AdamW(loss_module.parameters(), lr=args.lr),
        accumulate=args.accumulate,
        **run.trainer_options,
    )
    Validate(blocks[cut:], batch_size=args.batch_size).register(trainer)
    run.train(trainer)


if __name__ == "__main__":
    launch(main)
