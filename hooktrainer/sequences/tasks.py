"""`TextTask`: a training task of a language model; and the tasks that hooktrainer ships."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.checks import named
from ..errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class TextTask:
    """A task of a language model: prompts, right completions, and how completions are scored.

    Attributes:
        prompts: Rows to train on by index: mappings with the text or chat ``"prompt"``, and for
            supervised training ``"completion"``, for preferences ``"chosen"`` and ``"rejected"``;
            such as a data set of Hugging Face.
        held_out: Rows of the same kind to evaluate on; none by default.
        rewards: Functions that score completions; see `hooktrainer.sequences.Rewards`.
        score: Scores completions in evaluations; by default ``rewards``.
        respond: Answers where a model stops, as a tool or an environment; see
            `hooktrainer.sequences.CompletionCollector`.
        tokenizer: Makes tokens of texts: ``encode``, ``decode``, ``eos_token_id``, and ``len``, as
            those of transformers; by default that of the model.
        max_new_tokens: Enough tokens for a completion.
        name: Its name.
    """

    prompts: Sequence[Mapping[str, Any]]
    held_out: Sequence[Mapping[str, Any]] = ()
    rewards: Any = None
    score: Any = None
    respond: Any = None
    tokenizer: Any = None
    max_new_tokens: int = 256
    name: str = "task"


class CharTokenizer:
    """One token for each character of an alphabet, and token 0 for the end of a text.

    Args:
        alphabet: The characters.
    """

    eos_token_id = 0

    def __init__(self, alphabet: str) -> None:
        self.alphabet = alphabet
        self._tokens = {character: token for token, character in enumerate(alphabet, 1)}

    def __len__(self) -> int:
        return len(self.alphabet) + 1

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Return the tokens of a text; there are no special ones to add.

        Raises:
            ConfigError: If a character is not in the alphabet.
        """
        try:
            return [self._tokens[character] for character in text]
        except KeyError as error:
            raise ConfigError(
                f"the text {text!r:.40} has {error}, which is not in {self.alphabet!r:.40}."
            ) from None

    def decode(self, tokens: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Return the text of tokens, without ends and those beyond the alphabet."""
        return "".join(self.alphabet[token - 1] for token in tokens if 0 < token < len(self))


class Sums(Sequence[Mapping[str, str]]):
    """Sums of two numbers of two or three digits: ``"057+308="`` and its ``"answer"`` ``"5630"``.

    All numbers are as long, and answers begin with their last digit, the order in which one adds by
    hand: so a small transformer learns sums from 30 000 of them.

    Args:
        number: How many.
        seed: Seed of the numbers.
    """

    def __init__(self, number: int, seed: int) -> None:
        drawn = np.random.default_rng(seed)
        least = np.where(drawn.random((number, 2)) < 0.5, 10, 100)
        self._terms = drawn.integers(least, least * 10)

    def __len__(self) -> int:
        return len(self._terms)

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        a, b = map(int, self._terms[index])
        answer, wrong = (f"{total:04}"[::-1] for total in (a + b, a + b + 1 + index % 9))
        pair = {"chosen": answer, "rejected": wrong}
        return {"prompt": f"{a:03}+{b:03}=", "completion": answer, "answer": answer, **pair}


def correct(completions: Sequence[str], answer: Sequence[str]) -> list[float]:
    """Score 1 for each completion that is the answer, else 0."""
    return [float(one == right) for one, right in zip(completions, answer, strict=True)]


def digits(completions: Sequence[str], answer: Sequence[str]) -> list[float]:
    """Score the fraction of places at which a completion has the answer's digit."""
    return [
        sum(a == b for a, b in zip(one, right, strict=False)) / max(len(one), len(right))
        for one, right in zip(completions, answer, strict=True)
    ]


def _addition() -> TextTask:
    return TextTask(
        name="addition",
        tokenizer=CharTokenizer("0123456789+="),
        prompts=Sums(50_000, seed=1),
        held_out=Sums(500, seed=2),
        rewards=[correct, digits],
        score=correct,
        max_new_tokens=5,
    )


_TASKS: dict[str, Callable[[], TextTask]] = {"addition": _addition}


def text_task(task: TextTask | str) -> TextTask:
    """Return a task, or the one of this name.

    Raises:
        ConfigError: If there is none.
    """
    if isinstance(task, TextTask):
        return task
    return named("task", str(task)[:60], _TASKS, "; in Python pass a TextTask of yours")()
