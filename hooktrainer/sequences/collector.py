"""`CompletionCollector`: a language model's completions of prompts, several for each prompt."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import torch
from tensordict import TensorDictBase
from torch.nn.functional import pad

from ..base.checks import check_count, share_equally
from ..base.words import plural
from ..collect.collector import Collector, Resumes
from ..data.batches import Order
from ..errors import ConfigError, StateMismatchError, as_failure
from ..loop.hook import EARLY
from ..loop.metrics import Samples
from ..loop.stateful import differing
from ..networks.language_model import LanguageModel, Sampling
from .encoding import PADDING, encode_following, encode_prompt, padded_batch
from .generation import Completion, Engine

Respond = Callable[[str, Any], str | None]
"""Answers a turn of the model: maps its text so far and the row of the prompt to text or None."""


class CompletionCollector(Collector):
    """Completes prompts with a language model, several times each; a batch is of completions.

    Batches are TensorDicts ``[completions]``, one group of completions after another, padded at the
    right to the longest:

    - ``"tokens"``, int64 ``[completions, time]``: the prompt and what follows it;
      ``"length"``, int64 ``[completions]``: how many of them there are;
    - ``"sampled"``, bool ``[completions, time]``: which tokens the model chose;
      ``"log_prob"``, float32 ``[completions, time]``: their log-probabilities under the very
      distribution that was sampled, else 0;
      ``"version"``, int64 ``[completions, time]``: the number of batches that the model was trained
      on when it chose them, else -1;
    - ``"prompt"``, int64 ``[completions]``: the index in ``prompts``;
      ``"group"``, int64 ``[completions]``: the number of the draw;
      ``"stopped"``, bool ``[completions]``: whether a stop token was the last token.

    Every prompt of the data is drawn once an epoch. The order is a function of seed and epoch, and
    a token's random number one of seed, group, completion and position: nothing depends on
    ``slots``.

    With ``carry_over=n``, n more prompts than a batch has are under way. Completions that are
    unfinished when the batch is full go on in the next one with newer weights, so short
    completions do not wait for long ones. A batch has the oldest finished groups. Groups begun
    more than ``max_age`` batches ago are waited for, never dropped.

    The state has the completions under way. A resumed run neither skips nor repeats a prompt, and
    is bit for bit the uninterrupted one; with an engine of its own, such as `ServerEngine`, as far
    as that returns the same tokens for the same completion.

    Args:
        model: The language model.
        prompts: Prompts by index: texts, lists of tokens, or mappings with the key ``"prompt"``;
            a chat is a list of messages, for a tokenizer with ``apply_chat_template``.
        tokenizer: Makes tokens of texts: ``encode``, ``decode`` and ``eos_token_id``, as those of
            transformers. Needed for texts and for ``respond``.
        prompts_per_batch: Prompts in a batch.
        completions_per_prompt: Completions of each prompt, its group.
        max_new_tokens: Greatest number of tokens chosen for a completion.
        sampling: Temperature and the limits of the distribution.
        stop_tokens: Tokens that end a completion; by default the tokenizer's ``eos_token_id``.
        slots: Completions computed at the same time; by default all of a batch. A finished one's
            place is taken by the next.
        carry_over: Number of prompts under way beyond those of a batch.
        max_age: Batches that a group may be under way after the one it was begun in.
        respond: Called with the text of a completion and the prompt's row in ``prompts`` where the
            model stops. Returns the text of a tool or an environment, after which the model goes
            on, or ``None`` to end.
        shuffle: Whether each epoch has its own order.
        epochs: Passes over the prompts; ``None`` for no end.
        engine: Makes the engine, with the arguments of `Engine`; such as
            ``functools.partial(ServerEngine, url=..., name=...)``.
        seed: Seed of the order and of the tokens.

    Raises:
        ConfigError: If an argument is invalid.
    """

    seed: int
    unit = "samples"

    def __init__(
        self,
        model: LanguageModel,
        prompts: Any,
        *,
        tokenizer: Any = None,
        prompts_per_batch: int = 16,
        completions_per_prompt: int = 8,
        max_new_tokens: int = 64,
        sampling: Sampling | None = None,
        stop_tokens: Collection[int] | None = None,
        slots: int | None = None,
        carry_over: int = 0,
        max_age: int | None = None,
        respond: Respond | None = None,
        shuffle: bool = True,
        epochs: int | None = None,
        engine: Callable[..., Engine] = Engine,
        seed: int = 0,
    ) -> None:
        check_count("prompts_per_batch", prompts_per_batch)
        check_count("completions_per_prompt", completions_per_prompt)
        check_count("max_new_tokens", max_new_tokens)
        check_count("slots", slots, none="all of a batch")
        check_count("max_age", max_age, none="2, if there is a carry_over")
        check_count("epochs", epochs, none="no end")
        check_count("carry_over", carry_over, least=0)
        if not len(prompts):
            raise ConfigError("prompts is empty: pass at least one prompt.")
        if carry_over > prompts_per_batch:
            raise ConfigError(
                f"carry_over={carry_over} is more than prompts_per_batch={prompts_per_batch}: "
                "groups could become older than any max_age."
            )
        if max_age is not None and not carry_over:
            raise ConfigError(f"max_age={max_age} has no effect without carry_over: leave it out.")
        if respond is not None and tokenizer is None:
            raise ConfigError("respond= needs a tokenizer.")
        if stop_tokens is None:
            end = getattr(tokenizer, "eos_token_id", None)
            if end is None:
                raise ConfigError(
                    "no stop_tokens, and no tokenizer with an eos_token_id: pass stop_tokens=."
                )
            stop_tokens = (end,)
        self.policy = model
        self.prompts = prompts
        self.tokenizer = tokenizer
        self.completions_per_prompt = completions_per_prompt
        self.epochs = epochs
        self.seed = seed
        self._groups = prompts_per_batch
        self._carry_over = carry_over
        self._max_age = max_age or 2
        self._shuffle = shuffle
        self._respond = respond
        self._make_engine = engine
        self.resumes: Resumes = "exactly" if engine is Engine else "partly"
        self._options: dict[str, Any] = {
            "slots": slots or (prompts_per_batch + carry_over) * completions_per_prompt,
            "sampling": sampling or Sampling(),
            "stop_tokens": stop_tokens,
            "max_new_tokens": max_new_tokens,
        }
        self._share = (0, 1)
        self._engine: Engine | None = None
        self._order: tuple[int, torch.Tensor] | None = None
        self._start_over()

    def _start_over(self) -> None:
        self.frames = 0
        self._batches = 0  # delivered
        self._drawn = 0  # prompts, those of all shares
        self._begun: dict[int, int] = {}  # group: batches delivered before it was begun
        self._finished: dict[int, list[Completion]] = {}  # of groups that are not delivered
        self._waiting: list[Completion] = []  # of those groups, unfinished
        self._engine = None

    # -- facts -----------------------------------------------------------------------------------

    @property
    def num_prompts(self) -> int | None:
        """Prompts of all epochs; ``None`` for no end."""
        return None if self.epochs is None else self.epochs * len(self.prompts)

    @property
    def frames_per_batch(self) -> int:  # type: ignore[override]
        return self._groups * self.completions_per_prompt

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return next(self.policy.parameters()).device

    @property
    def epoch(self) -> float:  # type: ignore[override]
        """Passes over the prompts so far, those under way not counted."""
        completions = self.completions_per_prompt * len(self.prompts)
        return self.frames * self._share[1] / completions

    @property
    def ended(self) -> str | None:  # type: ignore[override]
        if self._drawn != self.num_prompts or self._begun:
            return None
        return f"the prompts ran out after {plural(self.epochs or 0, 'epoch')}"

    @property
    def unsaved(self) -> str | None:
        if self.resumes == "exactly":
            return None
        return (
            "Completions are not generated by hooktrainer. A resumed run neither skips nor repeats "
            "a prompt, but is bit for bit the run that was never interrupted only if its engine "
            "returns the same tokens again."
        )

    def register(self, trainer: Any) -> None:
        def count_version() -> None:
            self.policy.version.fill_(trainer.progress.batches)

        trainer.register_op("post_steps", count_version, priority=EARLY)
        trainer.register_op("pre_steps_log", partial(_metrics, self.policy))

    # -- collecting ------------------------------------------------------------------------------

    def collect(self) -> TensorDictBase:
        self._check_open()
        if self._engine is None:
            self._engine = self._make_engine(
                self.policy,
                seed=self.seed,
                respond=None if self._respond is None else self._answer,
                **self._options,
            )
        else:
            self._engine.refresh()
        engine = self._engine
        try:
            while len(self._begun) < self._groups + self._carry_over and self._draw():
                pass
            for completion in chain(self._waiting, self._missing()):
                engine.submit(completion)  # to continue with the present weights
            needed = min(self._groups, len(self._begun))
            while not self._is_full(needed):
                for completion in engine.advance():
                    self._finished[completion.group].append(completion)
        except StopIteration as error:  # of a tool or the prompts; else iterating would end quietly
            raise as_failure(error, self.frames) from error
        finally:  # after an error, too: the state has every completion that was begun
            self._waiting = engine.abort()
        if not needed:
            raise StopIteration
        groups = [group for group in self._begun if self._is_finished(group)][:needed]
        self._batches += 1
        done = []
        for group in groups:
            del self._begun[group]
            done += sorted(self._finished.pop(group), key=lambda completion: completion.sample)
        batch = self._batch_of(done)
        self.frames += batch.numel()
        return batch

    def _draw(self) -> bool:
        """Begin the group of the next prompt; return whether there is one."""
        rank, world_size = self._share
        group = self._drawn + rank
        if self.num_prompts is not None and group >= self.num_prompts:
            return False
        self._drawn += world_size
        self._begun[group] = self._batches
        self._finished[group] = []
        return True

    def _missing(self) -> Iterator[Completion]:
        """Completions that were begun, and are neither finished nor waiting, from their prompts on.

        They are those of new groups, and those that an engine lost when it failed.
        """
        known = {(one.group, one.sample) for one in self._completions()}
        for group in self._begun:
            samples = range(self.completions_per_prompt)
            if missing := [sample for sample in samples if (group, sample) not in known]:
                index = self._index(group)
                tokens = self.prompt_tokens(index)
                for sample in missing:
                    yield Completion(index, group, sample, list(tokens), len(tokens))

    def _completions(self) -> list[Completion]:
        """Those of the groups under way that are finished, then those that are waiting."""
        return [*chain.from_iterable(self._finished.values()), *self._waiting]

    def _is_finished(self, group: int) -> bool:
        return len(self._finished[group]) == self.completions_per_prompt

    def _is_full(self, needed: int) -> bool:
        """Whether enough groups are finished, and those that are waited for."""
        unfinished = [begun for group, begun in self._begun.items() if not self._is_finished(group)]
        enough = len(self._begun) - len(unfinished) >= needed
        return enough and all(self._batches - begun < self._max_age for begun in unfinished)

    def _index(self, group: int) -> int:
        """The index of a group's prompt."""
        number = len(self.prompts)
        epoch, place = divmod(group, number)
        if self._order is None or self._order[0] != epoch:
            order = Order(number, number, self._shuffle, drop_last=False)
            self._order = epoch, order.of_epoch(self.seed, epoch)[0]
        return int(self._order[1][place])

    def prompt_tokens(self, index: int) -> Sequence[int]:
        """The tokens of a prompt."""
        return encode_prompt(self.tokenizer, self.prompts[index], index)

    def _answer(self, completion: Completion) -> Sequence[int] | None:
        assert self._respond is not None
        text = self.tokenizer.decode(completion.tokens[completion.prompt_length :])
        answer = self._respond(text, self.prompts[completion.prompt])
        return None if answer is None else encode_following(self.tokenizer, answer)

    def _batch_of(self, completions: Sequence[Completion]) -> TensorDictBase:
        batch = padded_batch(
            {
                "tokens": [one.tokens for one in completions],
                "sampled": [[False] * one.prompt_length + one.sampled for one in completions],
                "log_prob": [[0.0] * one.prompt_length + one.log_probs for one in completions],
                "version": [[-1] * one.prompt_length + one.versions for one in completions],
            }
        )
        batch["prompt"] = torch.tensor([one.prompt for one in completions])
        batch["group"] = torch.tensor([one.group for one in completions])
        batch["stopped"] = torch.tensor([one.finish == "stop" for one in completions])
        return batch.to(self.device)

    def set_seed(self, seed: int, static_seed: bool = False) -> None:
        self.seed = seed
        self._order = None
        self._start_over()

    def reset(self) -> None:
        """Do nothing: there are no episodes to abandon."""

    # -- state -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        return {
            "data": self._facts(),
            "seed": self.seed,
            "batches": self._batches,
            "drawn": self._drawn,
            "samples": self.frames * self._share[1],
            "begun": list(self._begun.items()),
            "completions": [one.state_dict() for one in self._completions()],
        }

    def _facts(self) -> dict[str, Any]:
        return {
            "prompts": len(self.prompts),
            "fingerprint": getattr(self.prompts, "_fingerprint", None),
            "completions_per_prompt": self.completions_per_prompt,
        }

    def mismatches(self, saved: Mapping[str, Any]) -> list[str]:
        """List how the prompts differ from those of a saved run."""
        if found := super().mismatches(saved):
            return found
        found = differing(self._facts(), saved.get("data", {}))
        if not found:
            for state in saved["completions"]:
                one = Completion.from_state(state)
                if list(self.prompt_tokens(one.prompt)) != one.tokens[: one.prompt_length]:
                    return [f"prompt {one.prompt}, which was under way, is another one here"]
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if lines := self.mismatches(state_dict):
            raise StateMismatchError(
                f"{'; '.join(lines)}: resume with the prompts of the saved run."
            )
        self.set_seed(state_dict["seed"])
        self._batches, self._drawn = state_dict["batches"], state_dict["drawn"]
        self.frames = state_dict["samples"] // self._share[1]
        self._begun = dict(state_dict["begun"])
        self._finished = {group: [] for group in self._begun}
        for state in state_dict["completions"]:
            one = Completion.from_state(state)
            place = self._waiting if one.finish is None else self._finished[one.group]
            place.append(one)

    # -- shared among processes ------------------------------------------------------------------

    def check_shares(self, number: int) -> None:
        share_equally(self._groups, number, "prompts_per_batch")
        share_equally(self._carry_over, number, "carry_over")
        if self.num_prompts is not None:
            share_equally(self.num_prompts, number, "the number of prompts in all epochs")

    def shard(self, rank: int, world_size: int) -> None:
        self.check_shares(world_size)
        self._share = (rank, world_size)
        self._groups //= world_size
        self._carry_over //= world_size
        self._options["slots"] = -(-self._options["slots"] // world_size)

    def reshard(self, states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        rank, world_size = self._share
        mine = sorted(pair for state in states for pair in state["begun"])[rank::world_size]
        groups = {group for group, _ in mine}
        completions = [one for state in states for one in state["completions"]]
        return {
            **states[0],
            "begun": mine,
            "completions": [one for one in completions if one["group"] in groups],
        }

    def join(self, shares: Sequence[TensorDictBase]) -> TensorDictBase:
        longest = max(share["tokens"].shape[1] for share in shares)
        wide = []
        for share in shares:
            room = (0, longest - share["tokens"].shape[1])
            filled = {key: pad(share[key], room, value=fill) for key, fill in PADDING.items()}
            wide.append(share.copy().update(filled))
        whole: TensorDictBase = torch.cat(wide)
        return whole[whole["group"].argsort(stable=True)]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_engine": None}


def _metrics(model: LanguageModel, batch: TensorDictBase) -> dict[str, Any]:
    """Lengths of completions, and the ages of tokens in batches trained on since."""
    sampled = batch["sampled"]
    return {
        "data/tokens": Samples(sampled.sum(-1).float()),
        "data/stopped": Samples(batch["stopped"].float()),
        "data/token_age": Samples((model.version - batch["version"])[sampled].float()),
    }
