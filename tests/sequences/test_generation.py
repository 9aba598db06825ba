"""Generation by continuous batching: the same completions in any order, resumed, in turns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from scipy.stats import chisquare

from hooktrainer.errors import ConfigError, NonFiniteError
from hooktrainer.networks import CausalTransformer, Sampling
from hooktrainer.sequences import Completion, Engine

VOCAB, CONTEXT, STOP = 12, 40, 0
ALL = Sampling(), Sampling(0.8, top_k=8, top_p=0.9)


def model_of(exact: bool = True, seed: int = 0) -> CausalTransformer:
    torch.manual_seed(seed)
    model = CausalTransformer(VOCAB, CONTEXT, width=32, exact=exact)
    model.head.weight.data *= 20
    return model


def engine_of(model: CausalTransformer, **options: Any) -> Engine:
    defaults = {"slots": 4, "sampling": Sampling(), "stop_tokens": [STOP]}
    return Engine(model, **{**defaults, "max_new_tokens": 20, "seed": 7, **options})


def prompts(groups: int = 6, samples: int = 3) -> list[Completion]:
    made = []
    for group in range(groups):
        tokens = [1 + (group + i) % (VOCAB - 1) for i in range(1 + 5 * group)]
        for sample in range(samples):
            made.append(Completion(group % 4, group, sample, list(tokens), len(tokens)))
    return made


def finish(engine: Engine, completions: Iterable[Completion] = ()) -> list[Completion]:
    for completion in completions:
        engine.submit(completion)
    done = []
    for _ in range(600):
        done += engine.advance()
    assert not engine.abort()
    return sorted(done, key=lambda completion: (completion.group, completion.sample))


@pytest.mark.parametrize("sampling", ALL)
def test_completions_depend_neither_on_slots_nor_on_order(sampling):
    model = model_of()
    expected = finish(engine_of(model, slots=1, sampling=sampling), prompts())
    assert len({tuple(completion.tokens) for completion in expected}) > 12  # of 18
    for slots, order in ((4, 1), (5, -1), (40, 1)):
        engine = engine_of(model, slots=slots, sampling=sampling)
        assert finish(engine, prompts()[::order]) == expected
    assert finish(engine_of(model, sampling=sampling, seed=8), prompts()) != expected


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("sampling", ALL)
def test_log_probs_are_those_of_training(exact, sampling):
    model = model_of(exact)
    done = finish(engine_of(model, sampling=sampling, slots=7), prompts())
    tokens = torch.tensor([token for completion in done for token in completion.tokens])
    lengths = [len(completion.tokens) for completion in done]
    log_probs = sampling.log_probs(model(tokens, lengths))
    assert log_probs.requires_grad
    now = log_probs.gather(1, tokens.roll(-1).unsqueeze(1)).squeeze(1).split(lengths)
    for completion, of_tokens in zip(done, now, strict=True):
        each = of_tokens[completion.prompt_length - 1 : len(completion.tokens) - 1]
        then = torch.tensor(completion.log_probs)
        if exact:
            assert torch.equal(each, then)
        else:
            torch.testing.assert_close(each, then, rtol=1e-4, atol=1e-4)
        assert completion.sampled == [True] * len(then)
        assert completion.versions == [0] * len(then)


def test_tokens_are_drawn_with_the_probabilities_that_are_recorded():
    model, sampling, number = model_of(), ALL[1], 2000
    engine = engine_of(model, slots=256, sampling=sampling, max_new_tokens=1)
    for sample in range(number):
        engine.submit(Completion(0, 3, sample, [3, 5], 2))
    done: list[Completion] = []
    while len(done) < number:
        done += engine.advance()
    drawn = torch.tensor([completion.tokens[-1] for completion in done]).bincount(minlength=VOCAB)
    log_probs = sampling.log_probs(model(torch.tensor([3, 5]), [2])[1]).detach()
    possible = log_probs.isfinite()
    assert 2 < possible.sum() < 9
    assert drawn[~possible].sum() == 0
    expected = log_probs[possible].double().softmax(0) * number
    assert chisquare(drawn[possible].numpy(), expected.numpy()).pvalue > 0.01
    assert all(c.log_probs == [log_probs[c.tokens[-1]].item()] for c in done)


@pytest.mark.parametrize("after", [0, 1, 5, 30])
def test_aborted_completions_continue_in_another_engine(after):
    model = model_of()
    expected = finish(engine_of(model), prompts())
    engine = engine_of(model)
    for completion in prompts():
        engine.submit(completion)
    done = [completion for _ in range(after) for completion in engine.advance()]
    rest = [Completion.from_state(completion.state_dict()) for completion in engine.abort()]
    assert engine.advance() == []
    assert (after == 0) == (len(rest) == len(expected) and not any(c.sampled for c in rest))
    done += finish(engine_of(model, slots=3), rest)
    assert sorted(done, key=lambda completion: (completion.group, completion.sample)) == expected


def test_refreshed_completions_continue_with_the_new_weights():
    other = model_of(seed=1)
    other.version += 5
    ends = []
    for refresh in (True, False):
        engine = engine_of(model := model_of(), slots=7)
        for completion in prompts():
            engine.submit(completion)
        done = [completion for _ in range(6) for completion in engine.advance()]
        if refresh:
            model.load_state_dict(other.state_dict())
            engine.refresh()
            done += finish(engine)
        else:  # in an engine whose cache never held anything of the old weights
            done += finish(engine_of(other), engine.abort())
        ends.append(sorted(done, key=lambda completion: (completion.group, completion.sample)))
    assert ends[0] == ends[1]
    assert all(completion.versions == sorted(completion.versions) for completion in ends[0])
    assert any(set(completion.versions) == {0, 5} for completion in ends[0])


def test_a_response_is_appended_and_the_model_continues():
    calls: list[list[int]] = []

    def respond(completion: Completion) -> list[int] | None:
        calls.append(list(completion.tokens))
        turns = sum(not sampled for sampled in completion.sampled) // 2
        return [10, 11] if turns < 2 else None

    model = model_of()
    expected = finish(engine_of(model, slots=1, respond=respond), prompts())
    assert finish(engine_of(model, slots=5, respond=respond), prompts()[::-1]) == expected
    assert all(tokens[-1] == STOP for tokens in calls)
    replied = [completion for completion in expected if False in completion.sampled]
    assert {completion.finish for completion in replied} == {"stop", "length"}
    for completion in replied:
        new = completion.tokens[completion.prompt_length :]
        at = completion.sampled.index(False)
        assert (new[at - 1], new[at : at + 2]) == (STOP, [10, 11])
        assert completion.log_probs[at : at + 2] == [0.0, 0.0]
        assert completion.versions[at : at + 2] == [-1, -1]
        assert len(new) == len(completion.sampled) == len(completion.log_probs)
        assert sum(completion.sampled) <= 20
        log_probs = Sampling().log_probs(
            model(torch.tensor(completion.tokens), [len(completion.tokens)])
        )
        for place, token in enumerate(new):
            if completion.sampled[place]:
                then = log_probs[completion.prompt_length + place - 1, token].item()
                assert completion.log_probs[place] == then


def test_how_completions_finish():
    for completion in finish(engine_of(model_of(), max_new_tokens=9), prompts()):
        new = completion.tokens[completion.prompt_length :]
        assert STOP not in new[:-1]
        assert completion.finish == ("stop" if new[-1] == STOP else "length")
        assert completion.finish == "stop" or len(new) == 9
    (full,) = finish(engine_of(model_of(), stop_tokens=[]), [Completion(0, 0, 0, [1] * 35, 35)])
    assert (full.finish, len(full.tokens)) == ("length", CONTEXT)
    engine = engine_of(
        model_of(), stop_tokens=range(VOCAB), respond=lambda _: [1] * CONTEXT, max_new_tokens=3
    )
    (full,) = finish(engine, [Completion(0, 0, 0, [1] * 5, 5)])
    assert (full.finish, len(full.tokens), sum(full.sampled)) == ("length", CONTEXT, 1)
    engine = engine_of(
        model_of(), stop_tokens=range(VOCAB), respond=lambda _: [1], max_new_tokens=3
    )
    (short,) = finish(engine, [Completion(0, 0, 0, [1] * 5, 5)])
    assert (short.finish, sum(short.sampled)) == ("length", 3)


def test_generation_leaves_model_and_random_state_unchanged():
    model = model_of()
    model.blocks[1].eval()
    modes = [module.training for module in model.modules()]
    seen = []
    model.norm.register_forward_hook(lambda module, *_: seen.append(module.training))
    state = torch.get_rng_state()
    finish(engine_of(model), prompts(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert [module.training for module in model.modules()] == modes
    assert set(seen) == {False}


@pytest.mark.parametrize(
    ("completion", "named"),
    [
        (Completion(9, 0, 0, [1] * CONTEXT, CONTEXT), "prompt 9 has 40 tokens.*context of 40"),
        (Completion(9, 0, 0, [], 0), "prompt 9 has 0 tokens"),
        (Completion(9, 0, 0, [1, VOCAB], 2), "prompt 9 has tokens from 1 to 12"),
        (Completion(9, 0, 0, [1], 1, finish="stop"), "prompt 9 is finished"),
        (Completion(9, 0, 0, [1] * 21, 1, [True] * 20), "prompt 9 has max_new_tokens=20"),
    ],
)
def test_a_completion_that_cannot_run_is_refused(completion, named):
    engine = engine_of(model_of())
    with pytest.raises(ConfigError, match=named):
        engine.submit(completion)
    assert not engine.abort()


def test_invalid_options_and_weights_are_refused():
    for options in ({"slots": 0}, {"max_new_tokens": 0}, {"seed": -1}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            engine_of(model_of(), **options)
    with pytest.raises(ConfigError, match="stop token 12"):
        engine_of(model_of(), stop_tokens=[VOCAB])
    model = model_of()
    model.head.weight.data[3] = torch.nan
    with pytest.raises(NonFiniteError):
        finish(engine_of(model), prompts(1))
