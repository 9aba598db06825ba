"""Data sets of texts as batches of tokens, for supervised training and preferences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensordict import TensorDict, TensorDictBase
from torch.utils.data import Dataset

from ..errors import ConfigError
from .encoding import encode_chat, encode_following, encode_prompt, is_chat, padded_batch

Tokens = tuple[list[int], int]
"""The tokens of a prompt and its completion, and the prompt's number of them."""


class Demonstrations(Dataset[dict[str, Tokens]]):
    """Rows with a ``"prompt"`` and texts that complete it, as tokens.

    Pass it to `hooktrainer.DataCollector` with ``collate=Demonstrations.collate``.

    Args:
        rows: Mappings with ``"prompt"`` and ``columns``: texts, lists of tokens, or chats for a
            tokenizer with ``apply_chat_template``.
        tokenizer: Makes tokens of texts, and has the ``eos_token_id`` that ends them.
        columns: ``("completion",)``, or ``("chosen", "rejected")`` for preferences.
        context_length: Longest sequence that the model takes.

    Raises:
        ConfigError: If a row lacks a column or is too long, or the tokenizer has no
            ``eos_token_id``.
    """

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        tokenizer: Any,
        columns: Sequence[str] = ("completion",),
        context_length: int | None = None,
    ) -> None:
        self.rows, self.tokenizer, self.columns = rows, tokenizer, tuple(columns)
        self.context_length = context_length
        self._fingerprint = getattr(rows, "_fingerprint", None)
        if getattr(tokenizer, "eos_token_id", None) is None:
            raise ConfigError(
                f"{type(tokenizer).__name__} has no eos_token_id, which ends a completion: set it."
            )
        if len(rows):
            self[0]  # a column that is missing is found now

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Tokens]:
        row = self.rows[index]
        prompt = encode_prompt(self.tokenizer, row, index)
        found = {}
        for name in self.columns:
            if name not in row:
                raise ConfigError(f"row {index} has no {name!r}; it has {sorted(row)}.")
            tokens = self._whole(row, name, prompt, index)
            if self.context_length is not None and len(tokens) > self.context_length:
                raise ConfigError(
                    f"row {index} has {len(tokens)} tokens with its {name!r}, and the model takes "
                    f"{self.context_length}: leave it out, or raise context_length."
                )
            found[name] = tokens, len(prompt)
        return found

    def _whole(self, row: Any, name: str, prompt: list[int], index: int) -> list[int]:
        """The tokens of the prompt and its completion."""
        completion = row[name]
        if not is_chat(completion):
            ending = [self.tokenizer.eos_token_id]
            return [*prompt, *encode_following(self.tokenizer, completion), *ending]
        if not is_chat(row["prompt"]):
            raise ConfigError(
                f"row {index}: {name!r} is a chat, and the prompt is not: make both chats, or both "
                "texts."
            )
        whole = encode_chat(self.tokenizer, [*row["prompt"], *completion])
        if whole[: len(prompt)] != prompt:
            raise ConfigError(
                f"row {index}: the chat template makes other tokens of the prompt when {name!r} "
                "follows. Pass texts."
            )
        return whole

    @staticmethod
    def collate(samples: Sequence[Mapping[str, Tokens]]) -> TensorDictBase:
        """Join samples: ``tokens``, ``length`` and ``sampled``, under each column if several.

        ``sampled`` marks the tokens of the completion, which are learned.
        """
        columns = list(samples[0])
        batches = {name: _joined([sample[name] for sample in samples]) for name in columns}
        if len(columns) == 1:
            return batches[columns[0]]
        return TensorDict(dict(batches), [len(samples)])


def _joined(samples: Sequence[Tokens]) -> TensorDictBase:
    return padded_batch(
        {
            "tokens": [one for one, _ in samples],
            "sampled": [[False] * start + [True] * (len(one) - start) for one, start in samples],
        }
    )
