"""`Demonstrations`: tokens of prompts with what completes them, from texts and from chats."""

from __future__ import annotations

from typing import Any

import pytest

from hooktrainer.errors import ConfigError
from hooktrainer.networks import CausalTransformer
from hooktrainer.sequences import CharTokenizer, CompletionCollector, Demonstrations

START = 3


class Starting(CharTokenizer):
    """Begins every text with a special token, and has a template of chats, as many do."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [START] * add_special_tokens + super().encode(text)

    def apply_chat_template(
        self, chat: list[Any], add_generation_prompt: bool = False, return_dict: bool = True
    ) -> list[int]:
        assert not return_dict
        said = [token for one in chat for token in [*self.encode(one["content"], False), 0]]
        return [START, *said, *[2] * add_generation_prompt]


TOKENIZER = Starting("ab")
USER, ANSWER = {"role": "user", "content": "b"}, {"role": "assistant", "content": "ab"}


@pytest.mark.parametrize(
    ("row", "tokens", "start"),
    [
        ({"prompt": "ab", "completion": "b"}, [START, 1, 2, 2, 0], 3),
        ({"prompt": [1], "completion": [2]}, [1, 2, 0], 1),
        ({"prompt": [USER], "completion": "b"}, [START, 2, 0, 2, 2, 0], 4),
    ],
)
def test_a_completion_follows_its_prompt_without_another_start(
    row: Any, tokens: list[int], start: int
) -> None:
    assert Demonstrations([row], TOKENIZER)[0] == {"completion": (tokens, start)}


def test_a_chat_is_completed_as_its_template_writes_it() -> None:
    class Simple(CharTokenizer):
        def apply_chat_template(self, chat: list[Any], **_: bool) -> list[int]:
            return [2, 1, *([1, 2, 0] if chat[1:] else [])]

    found = Demonstrations([{"prompt": [USER], "completion": [ANSWER]}], Simple("ab"))[0]
    assert found == {"completion": ([2, 1, 1, 2, 0], 2)}
    with pytest.raises(ConfigError, match="row 0"):
        Demonstrations([{"prompt": [USER], "completion": [ANSWER]}], TOKENIZER)


def test_the_reply_of_a_tool_has_no_start() -> None:
    replies = iter(["ab"])
    collector = CompletionCollector(
        CausalTransformer(4, 16, width=8, depth=1, heads=1),
        ["a"],
        tokenizer=TOKENIZER,
        prompts_per_batch=1,
        completions_per_prompt=1,
        max_new_tokens=2,
        stop_tokens=range(4),
        respond=lambda text, row: next(replies, None),
    )
    (tokens,) = collector.collect()["tokens"].tolist()
    assert tokens[:2] == [START, 1]
    assert tokens[3:5] == [1, 2]


@pytest.mark.parametrize(
    ("rows", "eos", "words"),
    [
        ([{"prompt": "a"}], 0, ("'completion'", "'prompt'")),
        ([{"completion": "a"}], 0, ("'prompt'", "'completion'")),
        ([{"prompt": "a", "completion": "b"}], None, ("eos_token_id",)),
        ([{"prompt": "a" * 9, "completion": "b"}], 0, ("12", "8")),
        ([{"prompt": "ab", "completion": [ANSWER]}], 0, ("row 0", "'completion' is a chat")),
    ],
)
def test_mistakes_are_found_at_once(rows: Any, eos: int | None, words: tuple[str, ...]) -> None:
    tokenizer = Starting("ab")
    tokenizer.eos_token_id = eos  # type: ignore[assignment]
    with pytest.raises(ConfigError) as caught:
        Demonstrations(rows, tokenizer, context_length=8)
    assert all(word in str(caught.value) for word in words)


def test_texts_need_a_tokenizer_and_chats_its_template() -> None:
    with pytest.raises(ConfigError, match="NoneType has no eos_token_id"):
        Demonstrations([{"prompt": [1], "completion": [2]}], None)
    with pytest.raises(ConfigError, match="CharTokenizer"):
        Demonstrations([{"prompt": [USER], "completion": "b"}], CharTokenizer("ab"))
