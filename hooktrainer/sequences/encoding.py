"""Tokens of prompts, chats, and texts that follow others; and batches of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

import torch
from tensordict import TensorDict

from ..errors import ConfigError
from ..networks.language_model import padded

PADDING: Final[Mapping[str, Any]] = {"tokens": 0, "sampled": False, "log_prob": 0.0, "version": -1}
"""The padding of each entry ``[rows, time]``."""


def is_chat(value: Any) -> bool:
    """Whether a prompt or a completion is a list of messages."""
    return isinstance(value, (list, tuple)) and bool(value) and isinstance(value[0], Mapping)


def prompt_of(row: Any, index: int) -> Any:
    """The prompt of a row of data, which is a mapping with the key ``"prompt"``, or a prompt."""
    if not isinstance(row, Mapping):
        return row
    if "prompt" not in row:
        raise ConfigError(f"row {index} has no 'prompt'; it has {sorted(row)}.")
    return row["prompt"]


def encode_prompt(tokenizer: Any, row: Any, index: int) -> list[int]:
    """Return the tokens of a row's prompt: a text, a chat, or tokens."""
    prompt = prompt_of(row, index)
    if is_chat(prompt):
        return encode_chat(tokenizer, prompt, add_generation_prompt=True)
    if not isinstance(prompt, str):
        return [int(token) for token in prompt]
    if tokenizer is None:
        raise ConfigError(f"prompt {index} is the text {prompt!r:.40}: pass a tokenizer.")
    return list(tokenizer.encode(prompt))


def encode_chat(tokenizer: Any, chat: Sequence[Any], **options: bool) -> list[int]:
    """Return the tokens of a list of messages."""
    if not hasattr(tokenizer, "apply_chat_template"):
        raise ConfigError(
            f"the data has chats, and {type(tokenizer).__name__} has no apply_chat_template: pass "
            "texts, or a tokenizer of transformers that has a chat template."
        )
    return list(tokenizer.apply_chat_template(list(chat), return_dict=False, **options))


def encode_following(tokenizer: Any, text: Any) -> list[int]:
    """Return the tokens of a text, or tokens, that follow others: without a token of the start."""
    if not isinstance(text, str):
        return list(text)
    return list(tokenizer.encode(text, add_special_tokens=False))


def padded_batch(columns: Mapping[str, Sequence[Sequence[Any]]]) -> TensorDict:
    """Return a batch ``[rows]`` of entries ``[rows, time]``, with ``"length"``.

    Args:
        columns: Rows of each entry, one with ``"tokens"``; all entries of a row are as long.
    """
    lengths = [len(row) for row in columns["tokens"]]
    longest = max(lengths)
    entries = {
        key: padded(torch.tensor(list(chain(*rows))), lengths, longest, PADDING[key])
        for key, rows in columns.items()
    }
    return TensorDict({**entries, "length": torch.tensor(lengths)}, [len(lengths)])
