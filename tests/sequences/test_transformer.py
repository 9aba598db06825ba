"""The causal transformer: packed, cached, exact; sampling; packing."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from hooktrainer.errors import ConfigError
from hooktrainer.networks import CausalTransformer, Sampling, packed, padded

CONTEXT = 150
LENGTHS = [5, 17, CONTEXT, 1, 75, 76, 64, 65, 8]
SHAPES = [(20, 64, 4), (17, 48, 3), (33, 40, 5)]  # of vocabulary, width, heads
SAMPLINGS = [Sampling(), Sampling(0.7), Sampling(top_k=5), Sampling(1.3, 9, 0.8)]


def model_of(exact: bool, vocab: int = 20, width: int = 64, heads: int = 4) -> CausalTransformer:
    torch.manual_seed(0)
    model = CausalTransformer(vocab, CONTEXT, width=width, heads=heads, exact=exact)
    model.head.weight.data *= 50  # distributions far from uniform
    return model


def sequences(vocab: int) -> list[torch.Tensor]:
    make = torch.Generator().manual_seed(1)
    return [torch.randint(vocab, (length,), generator=make) for length in LENGTHS]


def agree(one: torch.Tensor, other: torch.Tensor, exact: bool) -> None:
    if exact:
        assert torch.equal(one, other)
    else:
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(("vocab", "width", "heads"), SHAPES)
def test_logits_are_those_of_each_sequence_alone(exact, vocab, width, heads):
    model = model_of(exact, vocab, width, heads)
    each = sequences(vocab)
    alone = [model(tokens, [len(tokens)]) for tokens in each]
    for order in (range(len(each)), [2, 7, 0], [4, 4, 4, 3], [1, 8] * 30):
        logits = model(torch.cat([each[i] for i in order]), [LENGTHS[i] for i in order])
        agree(logits, torch.cat([alone[i] for i in order]), exact)
        for sampling in SAMPLINGS:
            log_probs = sampling.log_probs(logits)
            agree(log_probs[-1:], sampling.log_probs(alone[order[-1]][-1:]), exact)


@torch.no_grad()
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(("vocab", "width", "heads"), SHAPES)
def test_cached_steps_equal_the_whole_sequence(exact, vocab, width, heads):
    model = model_of(exact, vocab, width, heads)
    each = sequences(vocab)
    whole = [model(tokens, [len(tokens)]) for tokens in each]
    cache = model.new_cache(5)
    model.prefill(cache, [0, 1], torch.cat([each[0], each[2]]), [5, CONTEXT])  # to be replaced
    rows = [(2, 120), (5, 1), (4, 40), (6, 50), (2, 60)]  # sequence, and how much of it is there
    tokens = torch.cat([each[i][:length] for i, length in rows])
    logits = model.prefill(cache, range(5), tokens, [length for _, length in rows])
    for step in range(8):
        agree(logits, torch.stack([whole[i][length - 1] for i, length in rows]), exact)
        assert cache.lengths[: len(rows)] == [length for _, length in rows]
        if step in (2, 5):  # a row ends, and the last takes its place
            rows[1] = rows.pop()
            cache.move(len(rows), 1)
        logits = model.step(cache, torch.stack([each[i][length] for i, length in rows]))
        rows = [(i, length + 1) for i, length in rows]


def test_exact_mode_is_exact_with_more_threads():
    model = model_of(exact=True)
    tokens = sequences(20)[2]
    whole = model(tokens, [CONTEXT])
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert torch.equal(model(tokens.repeat(9), [CONTEXT] * 9), whole.repeat(9, 1))
        cache = model.new_cache(1)
        last = model.prefill(cache, [0], tokens[:70], [70])
        steps = [model.step(cache, tokens[at : at + 1]) for at in range(70, 80)]
        assert torch.equal(torch.cat([last, *steps]), whole[69:80])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("exact", [False, True])
def test_gradients_are_the_sum_of_those_of_each_sequence_alone(exact):
    each, sampling = sequences(20), Sampling(0.7)

    def gradients(model, tokens, lengths):
        log_probs = sampling.log_probs(model(tokens, lengths))
        loss = log_probs.gather(1, tokens.unsqueeze(1)).sum()
        return torch.autograd.grad(loss, list(model.parameters()))

    together = gradients(model_of(exact), torch.cat(each), LENGTHS)
    alone = [gradients(model_of(exact=False), tokens, [len(tokens)]) for tokens in each]
    for one, others in zip(together, zip(*alone, strict=True), strict=True):
        torch.testing.assert_close(one, sum(others), rtol=1e-3, atol=1e-4 * one.abs().max().item())


def test_a_new_model_predicts_near_uniformly():
    log_probs = Sampling().log_probs(CausalTransformer(20, CONTEXT)(sequences(20)[2], [CONTEXT]))
    assert (log_probs + math.log(20)).abs().max() < 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [({"width": 30}, "width=30"), ({"depth": 0}, "depth=0"), ({"vocab_size": 0}, "vocab_size=0")],
)
def test_invalid_sizes_are_named(arguments, named):
    with pytest.raises(ConfigError, match=named):
        CausalTransformer(**{"vocab_size": 5, "context_length": 8} | arguments)


def test_what_does_not_fit_the_context_is_refused():
    model = CausalTransformer(5, 8)
    for length, lengths in ((9, [9]), (4, [3]), (4, [4, 0])):
        with pytest.raises(ConfigError, match="lengths"):
            model(torch.zeros(length, dtype=torch.int64), lengths)
    cache = model.new_cache(1)
    model.prefill(cache, [0], torch.zeros(8, dtype=torch.int64), [8])
    with pytest.raises(ConfigError, match="8 tokens"):
        model.step(cache, torch.tensor([1]))


# -- Sampling and packing.


def test_top_k_and_top_p_keep_the_most_probable_tokens():
    logits = torch.tensor([[0.1, 0.4, 0.3, 0.2]]).log().requires_grad_()
    assert torch.equal(Sampling(0.5).log_probs(logits), (logits / 0.5).log_softmax(-1))
    for sampling, kept in (
        (Sampling(top_k=2), [1, 2]),
        (Sampling(top_k=9), [0, 1, 2, 3]),
        (Sampling(top_p=0.65), [1, 2]),
        (Sampling(top_p=0.75), [1, 2, 3]),
        (Sampling(top_k=3, top_p=0.7), [1, 2]),
        (Sampling(top_p=1e-9), [1]),
    ):
        log_probs = sampling.log_probs(logits)
        expected = torch.full((4,), -torch.inf)
        expected[kept] = logits[0, kept].log_softmax(0)
        torch.testing.assert_close(log_probs[0], expected)
        (gradient,) = torch.autograd.grad(log_probs[0, 1], logits)
        assert gradient.isfinite().all()
        assert set(gradient.nonzero()[:, 1].tolist()) == (set(kept) if len(kept) > 1 else set())


def test_no_token_of_probability_0_is_drawn():
    probs = torch.tensor([0.0, 0.3, 0.0, 0.7, 0.0])
    numbers = torch.tensor([0.0, 0.2999, 0.3001, 1 - 2**-24])
    tokens = Sampling().sample(probs.log().expand(4, -1), numbers)
    assert tokens.tolist() == [1, 1, 3, 3]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [({"temperature": 0.0}, "temperature"), ({"top_k": 0}, "top_k"), ({"top_p": 0.0}, "top_p")],
)
def test_invalid_sampling_is_named(arguments, named):
    with pytest.raises(ConfigError, match=named):
        Sampling(**arguments)


def test_packed_and_padded_are_inverse():
    tokens = torch.tensor([[1, 2, 0], [3, 0, 0], [4, 5, 6]])
    assert packed(tokens, [2, 1, 3]).tolist() == [1, 2, 3, 4, 5, 6]
    assert torch.equal(padded(packed(tokens, [2, 1, 3]), [2, 1, 3], 3), tokens)
    values = torch.arange(12.0).view(6, 2).requires_grad_()
    full = padded(values, [2, 1, 3], 4)
    assert full.shape == (3, 4, 2)
    assert torch.equal(packed(full, [2, 1, 3]), values)
    assert torch.equal(torch.autograd.grad(full.sum(), values)[0], torch.ones(6, 2))
    with pytest.raises(ConfigError, match="4 tokens"):
        packed(tokens, [4, 1, 1])


@pytest.mark.parametrize("exact", [False, True])
def test_a_cache_grows_with_its_sequences_and_its_room_changes_no_bit(exact: bool) -> None:
    model = CausalTransformer(9, 4096, width=16, depth=1, heads=2, exact=exact)
    tokens = torch.randint(9, (60 + 62,))
    results = []
    for longest in (1, 500):
        cache: Any = model.new_cache(3)
        model.prefill(cache, [0], torch.randint(9, (longest,)), [longest])
        logits = [model.prefill(cache, [0, 1], tokens, [60, 62])]
        logits += [model.step(cache, torch.tensor([1, 2])) for _ in range(6)]
        assert cache.values.shape[-2] <= 2 * max(longest, 68)
        results.append(torch.cat(logits))
    assert torch.equal(*results)
