"""Language models: the price of exact mode, and generation against other loops.

Everything is measured in one process in turns, in CPU time; ratios are medians of the ratios of the
rounds. The other loops generate for a batch of prompts until its last completion ends. That of
transformers is measured if the package is installed.
"""

from __future__ import annotations

import copy
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
import tyro
from torch import Tensor

from hooktrainer.networks import CausalTransformer, Sampling
from hooktrainer.sequences import Completion, Engine

STOP = 0


@dataclass(kw_only=True)
class Args:
    """Options of the benchmark of language models."""

    width: int = 64
    """features of a token"""
    depth: int = 2
    """blocks"""
    heads: int = 4
    """attention heads"""
    vocab: int = 64
    """tokens; one of them stops"""
    context: int = 128
    """tokens in the longest sequence"""
    slots: int = 64
    """completions that run at a time"""
    prompts: int = 256
    """completions to generate in a round"""
    rounds: int = 7
    """rounds, of which the first is not counted"""
    threads: int = 1
    """of torch"""


def prompts(args: Args) -> list[list[int]]:
    """Return prompts of different lengths."""
    make = torch.Generator().manual_seed(0)
    lengths = torch.randint(4, args.context // 4, (args.prompts,), generator=make).tolist()
    return [torch.randint(1, args.vocab, (n,), generator=make).tolist() for n in lengths]


def training(model: CausalTransformer, args: Args) -> Callable[[], int]:
    """Make a function that computes a gradient, and returns the number of tokens."""
    make = torch.Generator().manual_seed(1)
    lengths = torch.randint(args.context // 8, args.context, (64,), generator=make).tolist()
    tokens = torch.randint(args.vocab, (sum(lengths),), generator=make)
    targets = tokens.roll(-1)

    def step() -> int:
        log_probs = Sampling().log_probs(model(tokens, lengths))
        model.zero_grad()
        (-log_probs.gather(1, targets.unsqueeze(1)).mean()).backward()
        return len(tokens)

    return step


def engine(model: CausalTransformer, args: Args) -> Callable[[], int]:
    """Make a function that generates with `Engine`, and returns the number of new tokens."""

    def generate() -> int:
        engine = Engine(
            model,
            slots=args.slots,
            sampling=Sampling(),
            stop_tokens=[STOP],
            max_new_tokens=args.context // 2,
            seed=0,
        )
        for number, prompt in enumerate(prompts(args)):
            engine.submit(Completion(number, number, 0, list(prompt), len(prompt)))
        done: list[Completion] = []
        while len(done) < args.prompts:
            done += engine.advance()
        return sum(len(completion.sampled) for completion in done)

    return generate


@torch.no_grad()
def loop(model: CausalTransformer, args: Args) -> int:
    """Generate with a loop as one writes it by hand, with the same model and cache."""
    made = 0
    todo = prompts(args)
    for start in range(0, len(todo), args.slots):
        batch = todo[start : start + args.slots]
        cache = model.new_cache(len(batch))
        tokens = torch.tensor([token for prompt in batch for token in prompt])
        logits = model.prefill(cache, range(len(batch)), tokens, [len(p) for p in batch])
        running = torch.ones(len(batch), dtype=torch.bool)
        new: list[Tensor] = []
        log_probs: list[Tensor] = []
        masks: list[Tensor] = []
        for _ in range(args.context // 2):
            each = logits.log_softmax(-1)
            drawn = torch.multinomial(each.exp(), 1)
            new.append(drawn)
            log_probs.append(each.gather(1, drawn))
            masks.append(running)
            running = running & (drawn.squeeze(1) != STOP)
            if not running.any():
                break
            logits = model.step(cache, drawn.squeeze(1))
        torch.cat(new, 1), torch.cat(log_probs, 1)
        made += int(torch.stack(masks).sum())
    return made


def transformers_generate(args: Args) -> Callable[[], int] | None:
    """Make a function that generates with the GPT-2 of transformers, of the same size."""
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError:
        return None
    config = GPT2Config(
        vocab_size=args.vocab,
        n_positions=args.context,
        n_embd=args.width,
        n_layer=args.depth,
        n_head=args.heads,
        bos_token_id=STOP,
        eos_token_id=STOP,
        pad_token_id=STOP,
    )
    model = GPT2LMHeadModel(config).eval()

    def generate() -> int:
        made = 0
        todo = prompts(args)
        for start in range(0, len(todo), args.slots):
            batch = todo[start : start + args.slots]
            longest = max(map(len, batch))
            ids = torch.tensor([[STOP] * (longest - len(p)) + p for p in batch])
            mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in batch])
            out = model.generate(
                ids, attention_mask=mask, do_sample=True, top_k=0, max_new_tokens=args.context // 2
            )[:, longest:]
            ended = (out == STOP).cumsum(1).cumsum(1)  # 1 at the first stop token
            made += int((ended <= 1).sum())
        return made

    return generate


def main(args: Args) -> None:
    """Measure, and print a line of JSON."""
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    sizes = {"width": args.width, "depth": args.depth, "heads": args.heads}
    free = CausalTransformer(args.vocab, args.context, **sizes)
    exact = CausalTransformer(args.vocab, args.context, exact=True, **sizes)
    exact.load_state_dict(copy.deepcopy(free.state_dict()))
    tasks: dict[str, Callable[[], int]] = {
        "training, free": training(free, args),
        "training, exact": training(exact, args),
        "generation, free": engine(free, args),
        "generation, exact": engine(exact, args),
        "generation, loop": lambda: loop(free, args),
    }
    if (theirs := transformers_generate(args)) is not None:
        tasks["generation, transformers"] = theirs
    seconds: dict[str, list[float]] = {name: [] for name in tasks}  # of CPU, for a token
    for _ in range(args.rounds):
        for name, task in tasks.items():
            start = time.process_time()
            tokens = task()
            seconds[name].append((time.process_time() - start) / tokens)
    seconds = {name: each[1:] for name, each in seconds.items()}

    def ratio(one: str, other: str) -> float:
        pairs = zip(seconds[one], seconds[other], strict=True)
        return round(statistics.median(a / b for a, b in pairs), 3)

    result = {
        "options": asdict(args),
        "parameters": sum(parameter.numel() for parameter in free.parameters()),
        "tokens per CPU second": {
            name: round(1 / statistics.median(each)) for name, each in seconds.items()
        },
        "cost of exact mode in training": ratio("training, exact", "training, free"),
        "cost of exact mode in generation": ratio("generation, exact", "generation, free"),
        "speed against the hand-written loop": ratio("generation, loop", "generation, free"),
    }
    if theirs is not None:
        result["speed against transformers"] = ratio("generation, transformers", "generation, free")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main(tyro.cli(Args))
