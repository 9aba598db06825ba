"""`TransformersModel`: models of transformers, with a cache, through the collector, with LoRA."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hooktrainer import Trainer
from hooktrainer.errors import ConfigError
from hooktrainer.networks import Sampling, TransformersModel
from hooktrainer.objectives import GRPOLoss
from hooktrainer.sequences import CharTokenizer, CompletionCollector, GroupAdvantage, Rewards

transformers = pytest.importorskip("transformers")
TOKENIZER = CharTokenizer("ab")
SIZES = {"vocab_size": 3, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}


def config(kind: str) -> Any:
    if kind == "gpt2":
        none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        return transformers.GPT2Config(
            n_positions=32, n_embd=16, n_layer=2, n_head=2, **none, **SIZES
        )
    return transformers.LlamaConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        **SIZES,
    )


def model(kind: str) -> TransformersModel:
    torch.manual_seed(0)
    return TransformersModel(transformers.AutoModelForCausalLM.from_config(config(kind)))


KINDS = pytest.mark.parametrize("kind", ["gpt2", "llama"])


@KINDS
def test_packed_logits_are_those_of_each_sequence(kind: str) -> None:
    made = model(kind)
    parts = [torch.randint(3, (length,)) for length in (5, 1, 9)]
    whole = made(torch.cat(parts), [5, 1, 9]).split([5, 1, 9])
    for part, logits in zip(parts, whole, strict=True):
        alone = made.network(input_ids=part.unsqueeze(0)).logits[0]
        torch.testing.assert_close(logits, alone, rtol=1e-5, atol=1e-6)


@KINDS
@torch.no_grad()
def test_cached_steps_are_the_whole_sequence(kind: str) -> None:
    made = model(kind).eval()
    rows = [torch.randint(3, (length,)) for length in (4, 7, 2)]
    cache = made.new_cache(4)
    last = made.prefill(cache, [0, 1, 2], torch.cat(rows), [4, 7, 2])
    for _ in range(3):
        for row, logits in zip(rows, last, strict=False):
            torch.testing.assert_close(logits, made(row, [len(row)])[-1], rtol=1e-4, atol=1e-5)
        drawn = torch.randint(3, (3,))
        rows = [torch.cat([row, token[None]]) for row, token in zip(rows, drawn, strict=True)]
        last = made.step(cache, drawn)
    cache.move(2, 0)
    rows = [torch.cat([rows[2], torch.tensor([1])]), torch.cat([rows[1], torch.tensor([2])])]
    last = made.step(cache, torch.tensor([1, 2]))
    for row, logits in zip(rows, last, strict=True):
        torch.testing.assert_close(logits, made(row, [len(row)])[-1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lora", [False, True])
def test_it_learns_by_grpo_also_with_lora(lora: bool) -> None:
    made = model("llama")
    if lora:
        peft = pytest.importorskip("peft")
        options = peft.LoraConfig(
            r=8, lora_alpha=32, target_modules=["q_proj", "v_proj", "up_proj"]
        )
        made = TransformersModel(peft.get_peft_model(made.network, options))
    frozen = {n: p.clone() for n, p in made.named_parameters() if not p.requires_grad}
    assert bool(frozen) == lora
    prompts = [{"prompt": "a"}, {"prompt": "b"}]
    collector = CompletionCollector(
        made,
        prompts,
        tokenizer=TOKENIZER,
        prompts_per_batch=4,
        completions_per_prompt=8,
        max_new_tokens=6,
        sampling=Sampling(temperature=1.0),
    )
    trained = [p for p in made.parameters() if p.requires_grad]
    trainer = Trainer(
        collector=collector,
        total_frames=32 * 25,
        loss_module=GRPOLoss(made),
        optimizer=torch.optim.Adam(trained, lr=2e-2),
        optim_steps_per_batch=1,
        progress_bar=False,
    )
    scores: list[float] = []

    def count(completions: list[str]) -> list[float]:
        values = [text.count("a") - text.count("b") for text in completions]
        scores.append(sum(values) / len(values))
        return values

    Rewards(count, prompts, TOKENIZER).register(trainer)
    GroupAdvantage().register(trainer)
    trainer.train()
    assert sum(scores[-5:]) / 5 > sum(scores[:5]) / 5 + (0.25 if lora else 1)
    now = dict(made.named_parameters())
    assert all(torch.equal(value, now[name]) for name, value in frozen.items())


@pytest.mark.parametrize("missing", ["max_position_embeddings", "vocab_size"])
def test_a_model_without_a_size_in_its_configuration_is_refused(missing: str) -> None:
    sizes = {"max_position_embeddings": 8, "vocab_size": 3}
    del sizes[missing]
    network = torch.nn.Linear(1, 1)
    network.config = SimpleNamespace(**sizes)  # type: ignore[assignment]
    with pytest.raises(ConfigError, match=f"Linear has no {missing} .* network.config.{missing}"):
        TransformersModel(network)
