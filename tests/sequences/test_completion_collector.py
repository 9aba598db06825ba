"""`CompletionCollector`: prompts, the contents of batches, carried completions, resumes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensordict import TensorDictBase

from hooktrainer.collect import OverlappedCollector
from hooktrainer.errors import ConfigError, StateMismatchError
from hooktrainer.networks import CausalTransformer, Sampling
from hooktrainer.objectives import SFTLoss
from hooktrainer.sequences import CharTokenizer, CompletionCollector
from hooktrainer.testing import check_collector, tiny_trainer

TOKENIZER = CharTokenizer("ab")
PROMPTS = [{"prompt": "a" * (1 + index % 3) + "b"} for index in range(10)]


def model(exact: bool = False) -> CausalTransformer:
    torch.manual_seed(0)
    return CausalTransformer(3, 24, width=16, depth=1, heads=2, exact=exact)


def collector(prompts: Any = PROMPTS, **options: Any) -> CompletionCollector:
    given = {"prompts_per_batch": 4, "completions_per_prompt": 3, "max_new_tokens": 12}
    made = options.pop("model", None) or model()
    return CompletionCollector(made, prompts, tokenizer=TOKENIZER, **{**given, **options})


def equal(one: TensorDictBase, other: TensorDictBase) -> bool:
    return bool((one == other).all())


def texts(batch: TensorDictBase) -> list[str]:
    return [
        TOKENIZER.decode(tokens[:length])
        for tokens, length in zip(batch["tokens"].tolist(), batch["length"].tolist(), strict=True)
    ]


def test_a_batch_has_groups_of_completions_of_its_prompts() -> None:
    batch = collector().collect()
    assert batch.batch_size == (12,)
    assert batch["group"].tolist() == [group for group in range(4) for _ in range(3)]
    for row, text in enumerate(texts(batch)):
        prompt = PROMPTS[int(batch["prompt"][row])]["prompt"]
        assert text.startswith(prompt)
        drawn = batch["sampled"][row].nonzero().squeeze(-1).tolist()
        assert drawn == list(range(len(prompt), int(batch["length"][row])))
        ends = batch["tokens"][row, drawn].tolist()
        assert (ends[-1] == TOKENIZER.eos_token_id) == bool(batch["stopped"][row])
        assert 0 not in ends[:-1]
        assert batch["stopped"][row] or len(ends) == 12
    assert (batch["version"] == torch.where(batch["sampled"], 0, -1)).all()
    assert (batch["log_prob"][~batch["sampled"]] == 0).all()


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.7, top_k=2)])
def test_log_probabilities_are_of_the_distribution_that_was_sampled(sampling: Sampling) -> None:
    exact = model(exact=True)
    batch = collector(model=exact, sampling=sampling).collect()
    for row, length in enumerate(batch["length"].tolist()):
        tokens = batch["tokens"][row, :length]
        found = sampling.log_probs(exact(tokens, [length]))[:-1].gather(-1, tokens[1:, None])
        drawn = batch["sampled"][row, 1:length]
        assert torch.equal(found.squeeze(-1)[drawn], batch["log_prob"][row, 1:length][drawn])


@pytest.mark.parametrize("slots", [1, 5])
def test_completions_do_not_depend_on_slots(slots: int) -> None:
    one = collector(model=model(exact=True)).collect()
    assert equal(one, collector(model=model(exact=True), slots=slots).collect())


def test_each_epoch_has_every_prompt_once_in_an_order_of_its_own() -> None:
    made = collector(epochs=2, completions_per_prompt=1)
    drawn = [index for batch in made for index in batch["prompt"].tolist()]
    assert sorted(drawn[:10]) == sorted(drawn[10:]) == list(range(10))
    assert drawn[:10] != drawn[10:] != list(range(10))
    assert made.ended == "the prompts ran out after 2 epochs"
    assert made.epoch == 2
    again = [index for batch in collector(epochs=1, seed=1) for index in batch["prompt"].tolist()]
    assert again[::3] != drawn[:10]
    plain = [i for b in collector(epochs=1, shuffle=False) for i in b["prompt"].tolist()]
    assert plain[::3] == list(range(10))


def test_carried_completions_go_on_with_newer_weights_and_none_is_lost() -> None:
    lm = model()
    made = collector(model=lm, carry_over=4, max_age=2, epochs=6, completions_per_prompt=2)
    made.policy.head.weight.data[0] -= 3  # long ones
    seen: list[int] = []
    mixed = 0
    for number, batch in enumerate(made):
        lm.version += 1
        groups = batch["group"].tolist()
        assert groups[::2] == groups[1::2]
        seen += groups[::2]
        versions = [
            set(v[s].tolist()) for v, s in zip(batch["version"], batch["sampled"], strict=True)
        ]
        mixed += sum(len(one) > 1 for one in versions)
        assert all(number - min(one) <= 2 for one in versions)
    assert sorted(seen) == list(range(60))
    assert mixed


@pytest.mark.parametrize("carry_over", [0, 3])
@pytest.mark.parametrize("batches", [1, 2, 3])
def test_a_resumed_collector_goes_on_exactly(carry_over: int, batches: int) -> None:
    made = collector(carry_over=carry_over, epochs=2, slots=5)
    for _ in range(batches):
        made.collect()
    other = collector(carry_over=carry_over, epochs=2, slots=5)
    other.load_state_dict(made.state_dict())
    assert other.frames == made.frames
    assert other.epoch == made.epoch
    for one, again in zip(made, other, strict=True):
        assert equal(one, again)


def test_a_prompt_that_cannot_be_completed_is_refused_until_it_can() -> None:
    prompts = [*PROMPTS[:5], {"prompt": "a" * 30}, *PROMPTS[6:]]
    made = collector(prompts, shuffle=False, carry_over=1)
    other = collector(shuffle=False, carry_over=1)
    assert equal(made.collect(), other.collect())
    for _ in range(2):
        with pytest.raises(ConfigError, match="prompt 5 has 30 tokens"):
            made.collect()
    prompts[5] = PROMPTS[5]
    assert equal(made.collect(), other.collect())


@pytest.mark.parametrize("call", [1, 3, 9])
def test_an_answer_that_fails_loses_no_completion(call: int) -> None:
    calls = 0

    def respond(text: str, row: Any) -> str | None:
        nonlocal calls
        calls += 1
        if calls == call:
            raise RuntimeError("the tool died")
        return "bb" if len(text) < 4 else None

    options = {"model": model(exact=True), "respond": respond, "max_new_tokens": 16}
    made, resumed = collector(**options), collector(**options)
    with pytest.raises(RuntimeError, match="the tool died"):
        made.collect()
    resumed.load_state_dict(made.state_dict())
    expected = collector(**options).collect()
    assert equal(made.collect(), expected)
    assert equal(resumed.collect(), expected)


def test_a_tool_whose_answers_ran_out_does_not_end_the_data() -> None:
    answers = iter(["b"])
    made = collector(respond=lambda text, row: next(answers), max_new_tokens=16)
    with pytest.raises(RuntimeError, match=r"StopIteration .*test_completion_collector.* default"):
        list(made)


def test_it_keeps_the_contract_of_collectors() -> None:
    check_collector(lambda: collector(model=model(exact=True)))


@pytest.mark.parametrize("numbers", [(1, 2), (2, 1), (2, 4), (1, 2, 1), (4, 2, 1)])
def test_shares_draw_every_prompt_once_also_when_their_number_changes(
    numbers: tuple[int, ...],
) -> None:
    def shares(number: int) -> list[CompletionCollector]:
        made = [collector(carry_over=4, completions_per_prompt=1) for _ in range(number)]
        for rank, one in enumerate(made):
            one.shard(rank, number)
        return made

    seen: list[int] = []
    states: list[Any] = []
    for number in numbers:
        parts = shares(number)
        for part in parts:
            part.load_state_dict(part.reshard(states) if states else part.state_dict())
        seen += [g for _ in range(2) for part in parts for g in part.collect()["group"].tolist()]
        states = [part.state_dict() for part in parts]
        assert len({state["drawn"] for state in states}) == 1
    assert len(seen) == len(set(seen)) == 8 * len(numbers)
    assert set(range(8 * len(numbers) - 4)) <= set(seen)


def test_versions_and_ages_are_those_of_the_learner_also_with_overlap() -> None:
    lm = model()
    trainer = tiny_trainer(
        collector=OverlappedCollector(collector(model=lm), mode="thread"),
        loss_module=SFTLoss(lm),
        total_frames=12 * 5,
    )
    seen: list[int] = []
    trainer.register_op("post_steps", lambda: seen.append(int(lm.version)))
    trainer.train()
    assert seen == [1, 2, 3, 4, 5]
    assert trainer.metrics.reported["data/token_age"] == 1


def test_a_tool_answers_and_its_tokens_are_not_trained_on() -> None:
    def respond(text: str, row: Any) -> str | None:
        return "bb" if len(text) < 4 else None

    batch = collector(respond=respond, max_new_tokens=16).collect()
    answered = 0
    for row, length in enumerate(batch["length"].tolist()):
        start = len(PROMPTS[int(batch["prompt"][row])]["prompt"])
        after = batch["sampled"][row, start:length]
        given = batch["tokens"][row, start:length][~after].tolist()
        assert len(given) % 2 == 0
        assert set(given) <= {2}
        answered += bool(given)
        assert (batch["log_prob"][row, start:length][~after] == 0).all()
    assert answered


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"carry_over": 5}, ("carry_over=5", "prompts_per_batch=4")),
        ({"max_age": 2}, ("max_age=2", "carry_over")),
        ({"prompts": []}, ("prompts",)),
        ({"prompts": [{"prompt": "a" * 24}]}, ("24",)),
        ({"epochs": 0}, ("epochs=0",)),
        ({"prompts": ["c"]}, ("'c'",)),
    ],
)
def test_mistakes_are_refused(options: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        collector(**options).collect()
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda rows: rows[:9], "prompts is 9 here and 10 in the state"),
        (lambda rows: [{"prompt": "b" + row["prompt"]} for row in rows], "under way"),
    ],
)
def test_changed_prompts_are_noticed(change: Callable[[Any], Any], word: str) -> None:
    made = collector(carry_over=4)
    made.policy.head.weight.data[0] -= 9
    while not made.state_dict()["completions"]:
        made.collect()
    with pytest.raises(StateMismatchError, match=word):
        collector(change(PROMPTS)).load_state_dict(made.state_dict())


def test_a_state_is_loaded_to_be_collected_ahead() -> None:
    made = collector()
    made.collect()
    other = OverlappedCollector(collector(), 1, mode="thread")
    other.load_state_dict(made.state_dict())
    assert other.frames == 12
    other.collect()
    ahead = other.state_dict()
    other.shutdown()
    with pytest.raises(StateMismatchError, match="had collected ahead: give --overlap as before"):
        collector().load_state_dict(ahead)
    OverlappedCollector(collector(), 0).load_state_dict(ahead)
