"""`ServerEngine`: completions of an inference server."""

from __future__ import annotations

import json
import math
import random
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from queue import SimpleQueue
from threading import Event, Thread
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from ..base.checks import check_count, check_positive
from ..base.words import listed
from ..errors import CollectorError, ConfigError
from ..networks.language_model import LanguageModel
from .generation import Completion, Engine

_AGAIN = (408, 409, 425, 429)  # statuses below 500 after which the same request may succeed
_TRIES = 3  # of a request whose answers are invalid
_WAITS = 0.1, 10.0  # seconds before the second try, and at most between two

Push = Callable[[LanguageModel, int], "str | None"]
"""Gives a server the weights of a model with their version; may return its new name there."""


class ServerEngine(Engine):
    """Generates completions on an inference server with OpenAI's completions API.

    Servers are those that take and return tokens: vLLM from 0.10.2, and SGLang with
    ``return_token_ids``. Use it as ``CompletionCollector(engine=partial(ServerEngine, url=...))``.

    Every completion is a request of its own, with a seed of its own, and is sent again after an
    error. A completion under way at `abort` keeps the tokens that earlier requests returned.

    A server's tokens depend on what else it computes, so a resumed run is not bit for bit the
    uninterrupted one; but it neither skips nor repeats a prompt. With ``carry_over``, which groups
    a batch has depends on the speed of the server, their order does not.

    Start vLLM with ``--logprobs-mode processed_logprobs``, or it returns log-probabilities from
    before temperature, ``top_k`` and ``top_p``. `RecomputeLogProbs` logs how much those of the
    server differ from the model's own, and `GRPOLoss` can correct it.

    Args:
        model: The model that is trained.
        url: Address of the API, such as ``"http://localhost:8000/v1"``.
        name: Name of the model on the server.
        push: Called at `refresh` with the model and its version. It gives the server the weights,
            and returns the name of the model on the server from then on, or `None` for the same.
        chunk: Tokens in a request; by default all of a completion. With ``carry_over``, a
            completion under way keeps its whole chunks.
        timeout: Seconds that an answer may take.
        patience: Seconds for which a request that fails is sent again before the run ends.
        headers: Further HTTP headers, such as ``Authorization``.
        options: As for `Engine`; ``slots`` is the number of requests at a time.

    Raises:
        ConfigError: If an argument is invalid, or the server refuses a request.
        CollectorError: If it does not answer for ``patience`` seconds, or not what was requested.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        url: str,
        name: str,
        push: Push,
        chunk: int | None = None,
        timeout: float = 600.0,
        patience: float = 600.0,
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        check_count("chunk", chunk, none="all tokens of a completion")
        check_positive("timeout", timeout)
        check_positive("patience", patience)
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"url={url!r}: pass an address such as 'http://localhost:8000/v1'.")
        self._url = f"{url.rstrip('/')}/completions"
        self._address = parts.netloc.rpartition("@")[2]
        self._connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._name, self._push, self._chunk = name, push, chunk
        self._timeout, self._patience = timeout, patience
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        self._requests: list[_Request] = []
        self._answered: SimpleQueue[_Request] = SimpleQueue()
        super().__init__(model, **options)

    def refresh(self) -> None:
        """Give the server the present weights, and repeat the requests under way."""
        self._queue.extendleft(reversed(self.abort()))
        super().refresh()
        self._name = self._push(self._model, self._version) or self._name

    def abort(self) -> list[Completion]:
        for request in self._requests:
            request.cancel()
        completions = [request.completion for request in self._requests] + list(self._queue)
        self._requests.clear()
        self._queue.clear()
        self._answered = SimpleQueue()  # answers to cancelled requests go to the one before
        return completions

    def advance(self) -> list[Completion]:
        """Wait for an answer; return the completions that finished."""
        while self._queue and len(self._requests) < self._slots:
            self._send(self._queue.popleft())
        if not self._requests:
            return []
        answered = [self._answered.get()]
        while not self._answered.empty():
            answered.append(self._answered.get())
        for request in answered:  # before any is used: all that were answered stay under way
            if request.error is not None:
                raise request.error
        finished = []
        for request in answered:
            self._requests.remove(request)
            completion = request.completion
            for token, log_prob in request.answer:
                self._add(completion, token, log_prob)
            stopped = completion.tokens[-1] in self._stop_tokens
            # With fewer tokens than requested, the server's context is at its end.
            if stopped or len(request.answer) < request.number or self._is_full(completion):
                self._end_turn(completion)
            if completion.finish is None:
                self._queue.appendleft(completion)
            else:
                finished.append(completion)
        return finished

    def _send(self, completion: Completion) -> None:
        """Start a thread that requests the next tokens of a completion."""
        number = min(self._left(completion), self._chunk or self._max_new_tokens)
        place = completion.group, completion.sample, len(completion.tokens)
        body = {
            "model": self._name,
            "prompt": completion.tokens,
            "max_tokens": number,
            "seed": random.Random(f"{self._seed} {place}").getrandbits(31),
            "temperature": self._sampling.temperature,
            "top_k": self._sampling.top_k or -1,
            "top_p": self._sampling.top_p,
            # A server's defaults for these may be those of the model's generation_config.json.
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "stop_token_ids": sorted(self._stop_tokens),
            "logprobs": 1,
            "return_token_ids": True,
        }
        request = _Request(completion, number, json.dumps(body).encode())
        self._requests.append(request)
        # Not a pool: its threads would keep an interrupted program from ending.
        Thread(target=self._complete, args=(request, self._answered), daemon=True).start()

    def _complete(self, request: _Request, answered: SimpleQueue[_Request]) -> None:
        try:
            request.answer = self._answer(request)
        except Exception as error:
            request.error = error
        answered.put(request)

    def _answer(self, request: _Request) -> list[tuple[int, float]]:
        wait, longest = _WAITS
        tries, failed_at = 0, math.inf
        while True:
            try:
                return self._read(request, self._post(request))
            except ConfigError:
                raise
            except (OSError, HTTPException, ValueError) as error:
                problem = error
            failed_at = min(failed_at, monotonic())
            tries += isinstance(problem, _WrongAnswerError)
            if tries == _TRIES or monotonic() + wait > failed_at + self._patience:
                raise CollectorError(
                    f"{self._url} gave no completion for {monotonic() - failed_at:.0f} s: "
                    f"{type(problem).__name__}: {problem}. Resume the run when the server is back, "
                    "or pass a longer patience= or timeout=."
                ) from problem
            if request.cancelled.wait(wait):
                raise problem
            wait = min(2 * wait, longest)

    def _post(self, request: _Request) -> Any:
        """Send a request once, and return the answer's JSON."""
        end = monotonic() + self._timeout
        connection = self._connect(self._address, timeout=self._timeout)
        try:
            connection.connect()
            request.socket = connection.sock
            if request.cancelled.is_set():
                raise ConnectionAbortedError("the request was cancelled")
            connection.request("POST", urlsplit(self._url).path, request.body, self._headers)
            content = b""
            with connection.getresponse() as response:
                while part := response.read1():
                    content += part
                    if monotonic() > end:  # each wait for a part may take as long
                        raise TimeoutError(f"the answer took more than {self._timeout:g} s")
        finally:
            connection.close()
        if response.status == 200:
            return json.loads(content)
        text = " ".join(content.decode(errors="replace").split())
        problem = f"HTTP {response.status} {response.reason}: {text:.300}"
        if response.status in _AGAIN or response.status >= 500:
            raise OSError(problem)
        raise ConfigError(f"{self._url} refuses a request for {self._name!r}: {problem}")

    def _read(self, request: _Request, answer: Any) -> list[tuple[int, float]]:
        """The tokens of an answer and their log-probabilities."""
        try:
            choice = answer["choices"][0]
            tokens, finish = list(choice["token_ids"]), choice["finish_reason"]
            log_probs = [float(one) for one in choice["logprobs"]["token_logprobs"]]
        except (LookupError, TypeError, ValueError) as error:
            raise _WrongAnswerError(f"no token_ids, logprobs or finish_reason: {error!r}") from None
        known = range(self._model.vocab_size)
        if (
            finish not in ("stop", "length")
            or not 0 < len(tokens) == len(log_probs) <= request.number
            or not all(type(one) is int and one in known for one in tokens)
            or not all(map(math.isfinite, log_probs))
            or self._stop_tokens.intersection(tokens[:-1])
        ):
            raise _WrongAnswerError(
                f"finish_reason {finish!r}, tokens {listed(tokens)} with log-probabilities "
                f"{listed(log_probs)}, where at most {request.number} of {len(known)} tokens up to "
                "a stop token were requested"
            )
        if finish == "stop" and tokens[-1] not in self._stop_tokens:
            raise ConfigError(f"{self._url} stops at token {tokens[-1]}: add it to stop_tokens=.")
        return list(zip(tokens, log_probs, strict=True))


class _WrongAnswerError(ValueError):
    """A complete answer, but not one to the request."""


@dataclass(eq=False)
class _Request:
    """The next tokens of a completion, requested in a thread."""

    completion: Completion
    number: int  # tokens at most
    body: bytes
    answer: list[tuple[int, float]] = field(default_factory=list)
    error: Exception | None = None
    socket: Any = None
    cancelled: Event = field(default_factory=Event)

    def cancel(self) -> None:
        """Close the connection, so that the server stops generating."""
        self.cancelled.set()
        if self.socket is not None:
            with suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)
