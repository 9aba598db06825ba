"""`ServerEngine`, against a server on the loopback that misbehaves as real ones do."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import torch
from tensordict import TensorDictBase

from hooktrainer import Trainer
from hooktrainer.errors import CollectorError, ConfigError
from hooktrainer.networks import CausalTransformer, Sampling
from hooktrainer.objectives import GRPOLoss
from hooktrainer.sequences import (
    CharTokenizer,
    Completion,
    CompletionCollector,
    Engine,
    GroupAdvantage,
    Rewards,
    ServerEngine,
)
from hooktrainer.sequences.log_probs import RecomputeLogProbs

PROMPTS = [{"prompt": "a" * (1 + index % 3) + "b"} for index in range(10)]


def drawn(body: dict[str, Any]) -> tuple[list[int], list[float]]:
    """Tokens that are a function of the request, as those of a server are with luck."""
    numbers = random.Random(f"{body['seed']} {body['prompt']}")
    tokens = []
    while len(tokens) < body["max_tokens"] and 0 not in tokens:
        tokens.append(numbers.choice((0, 1, 1, 2, 2, 2)))
    return tokens, [-numbers.random() for _ in tokens]


class Server(ThreadingHTTPServer):
    """The server: answers each request as `fault` of its body and the number of tries says."""

    daemon_threads = True

    def __init__(self, fault: Callable[[dict[str, Any], int], Any], port: int = 0) -> None:
        self.fault, self.draw = fault, drawn
        self.tries: dict[str, int] = {}
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", port), Handler)

    def handle_error(self, *_: Any) -> None:
        """Print nothing about a client that is gone."""

    def __enter__(self) -> Server:
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        body, server = json.loads(text), self.server
        with server.lock:
            tries = server.tries[text] = server.tries.get(text, 0) + 1
        self.answer(body, server.fault(body, tries) if self.path == "/v1/completions" else 404)

    def answer(self, body: dict[str, Any], fault: Any) -> None:
        tokens, log_probs = self.server.draw(body)
        choice: dict[str, Any] = {
            "text": "",
            "token_ids": tokens,
            "logprobs": {"token_logprobs": log_probs},
            "finish_reason": "length" if tokens[-1] else "stop",
        }
        choice |= {
            "other stop": {"finish_reason": "stop"},
            "past the stop": {"token_ids": [0 for _ in tokens]},
            "fewer": {"logprobs": {"token_logprobs": log_probs[:-1]}},
            "abort": {"finish_reason": "abort"},
        }.get(fault, {})
        content = json.dumps({"model": body["model"], "choices": [choice]}).encode()
        if isinstance(fault, int):
            content = b'{"error":\n "The model does not\n exist."}'
        time.sleep(0.6 * (fault == "slow"))
        if fault == "close":
            return
        length = len(content) // (2 if fault == "truncated" else 1)
        content = content[: length // 2] if fault == "die" else content * (1 + (fault == "twice"))
        self.send_response(fault if isinstance(fault, int) else 200)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        for byte in range(length) if fault == "drip" else ():
            time.sleep(0.05)
            self.wfile.write(content[byte : byte + 1])
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


def collector(server: Server, lm: Any = None, **options: Any) -> CompletionCollector:
    torch.manual_seed(0)
    own = ("chunk", "timeout", "patience")
    engine = partial(
        ServerEngine,
        url=f"http://127.0.0.1:{server.server_port}/v1",
        name="lm",
        push=options.pop("push", lambda model, version: None),
        **{key: options.pop(key) for key in own if key in options},
    )
    lm = lm or CausalTransformer(3, 24, width=16, depth=1, heads=2)
    given = {"prompts_per_batch": 4, "completions_per_prompt": 3, "max_new_tokens": 12, **options}
    return CompletionCollector(lm, PROMPTS, tokenizer=CharTokenizer("ab"), engine=engine, **given)


def groups_of(batch: TensorDictBase) -> list[int]:
    groups: list[int] = batch["group"][::3].tolist()
    assert batch["group"].tolist() == [group for group in groups for _ in range(3)]
    return groups


FAULTS = ["slow", "drip", "close", "die", "truncated", "twice", "fewer", "abort", 429, 500, 503]


@pytest.fixture(scope="module")
def expected() -> TensorDictBase:
    """The first batch from a server that answers everything."""
    torch.set_num_threads(1)
    with Server(lambda *_: None) as good:
        return collector(good).collect()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_request_that_fails_once_is_sent_again_and_changes_nothing(
    fault: Any, expected: TensorDictBase
) -> None:
    with Server(lambda _, tries: fault if tries == 1 else None) as bad:
        assert (collector(bad, timeout=0.4).collect() == expected).all()
        assert set(bad.tries.values()) == {1 if fault == "twice" else 2}


def test_a_batch_does_not_depend_on_the_order_of_answers_or_on_slots() -> None:
    batches = []
    for seed, slots in ((1, None), (2, None), (3, 2)):
        waits = random.Random(seed)
        with Server(lambda *_, waits=waits: time.sleep(0.05 * waits.random())) as server:
            batches.append(collector(server, slots=slots).collect())
    assert all((one == batches[0]).all() for one in batches)
    assert len({tuple(row) for row in batches[0]["log_prob"].tolist()}) == 12  # seeds of their own


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        (404, ConfigError, ("'lm'", "HTTP 404", "The model does not exist.")),
        ("other stop", ConfigError, ("stops at token", "stop_tokens")),
        ("fewer", CollectorError, ("log-probabilities",)),
        ("past the stop", CollectorError, ("up to a stop token",)),
        (500, CollectorError, ("HTTP 500", "patience")),
    ],
)
def test_what_does_not_pass_ends_the_run(fault: Any, error: Any, words: tuple[str, ...]) -> None:
    with Server(lambda *_: fault) as server, pytest.raises(error) as caught:
        collector(server, patience=0.5, max_new_tokens=3).collect()
    message = str(caught.value)
    assert all(word in message for word in (*words, "/v1/completions"))
    assert "\n" not in message


def test_completions_under_way_are_requested_again_after_a_refresh() -> None:
    with Server(lambda body, _: time.sleep(0.05 * (body["seed"] % 3))) as server:
        made = collector(server)
        made.collect()
        engine: Any = made._engine
        for group in range(8):
            engine.submit(Completion(0, group, 0, [1], 1))
        finished = engine.advance()
        engine.refresh()
        server.draw = lambda body: ([1], [-1.0])  # the server's context ends here
        while len(finished) < 8:
            finished += engine.advance()
        assert {one.group for one in finished} == set(range(8))
        assert (finished[-1].tokens, finished[-1].finish) == ([1, 1], "length")


def test_what_is_under_way_when_a_batch_is_full_is_cancelled() -> None:
    with Server(lambda body, _: 500 if body["prompt"][:3] == [1, 1, 1] else None) as server:
        collector(server, carry_over=4).collect()
        time.sleep(0.1)
        sent = sum(server.tries.values())
        time.sleep(0.5)
        assert sum(server.tries.values()) == sent


def test_after_a_server_was_away_no_prompt_is_skipped_or_doubled() -> None:
    with Server(lambda *_: None) as server:
        made = collector(server, epochs=1, completions_per_prompt=3, patience=0.5, carry_over=2)
        groups = groups_of(made.collect())
    with pytest.raises(CollectorError, match="ConnectionRefusedError"):
        made.collect()
    other = collector(server, epochs=1, carry_over=2)
    other.load_state_dict(made.state_dict())
    with Server(lambda *_: None, server.server_port):
        for one in (made, other):
            rest = [group for batch in one for group in groups_of(batch)]
            assert sorted(groups + rest) == list(range(10))
    assert made.resumes == "partly"
    assert "neither skips nor repeats" in str(made.unsaved)


def test_carried_completions_keep_their_chunks_and_the_versions_of_these() -> None:
    def later(body: dict[str, Any], _: int) -> None:
        time.sleep(0.01 + 0.2 * (len(body["prompt"]) > 8))

    seen, mixed = [], 0
    with Server(later) as server:
        made = collector(server, carry_over=4, chunk=3, epochs=3)
        while made.ended is None:
            batch = made.collect()
            made.policy.version += 1
            state = made.state_dict()
            made = collector(server, made.policy, carry_over=4, chunk=3, epochs=3)
            made.load_state_dict(state)
            seen += groups_of(batch)
            assert groups_of(batch) == sorted(groups_of(batch))
            rows = zip(batch["version"], batch["sampled"], strict=True)
            mixed += sum(len(set(version[mask].tolist())) > 1 for version, mask in rows)
        prompts = [len(json.loads(text)["prompt"]) for text in server.tries]
    assert sorted(seen) == list(range(30))
    assert mixed
    assert max(prompts) > 8


def test_it_trains_on_the_distribution_of_the_weights_that_were_pushed() -> None:
    served = CausalTransformer(3, 24, width=16, depth=1, heads=2, exact=True)
    pushed: list[int] = []

    def push(model: Any, version: int) -> str:
        served.load_state_dict(model.state_dict())
        pushed.append(version)
        return f"lm-{version}"

    def draw(body: dict[str, Any]) -> tuple[list[int], list[float]]:
        assert body["model"] == f"lm-{pushed[-1]}"
        number, prompt = body["max_tokens"], body["prompt"]
        sampling = Sampling(body["temperature"], max(body["top_k"], 0) or None, body["top_p"])
        with server.lock:
            limits = {"slots": 1, "max_new_tokens": number, "seed": body["seed"]}
            engine = Engine(served, sampling=sampling, stop_tokens=[0], **limits)
            engine.submit(one := Completion(0, 0, 0, list(prompt), len(prompt)))
            while not one.finish:
                engine.advance()
        return one.tokens[len(prompt) :], one.log_probs

    with Server(lambda *_: None) as server:
        server.draw = draw
        lm = deepcopy(served)
        sampling = Sampling(0.8, top_k=2)
        made = collector(server, lm, sampling=sampling, push=push)
        options: dict[str, Any] = {"optim_steps_per_batch": 1, "progress_bar": False}
        options["optimizer"] = torch.optim.Adam(lm.parameters(), 0.01)
        loss = GRPOLoss(lm, sampling=sampling)
        trainer = Trainer(collector=made, total_frames=48, loss_module=loss, **options)
        batches: list[TensorDictBase] = []
        trainer.register_op("batch_process", batches.append)
        Rewards(
            lambda completion_ids: [float(len(one)) for one in completion_ids], PROMPTS
        ).register(trainer)
        GroupAdvantage().register(trainer)
        RecomputeLogProbs(lm, sampling).register(trainer)
        trainer.train()
    assert pushed == [0, 1, 2, 3]
    for number, batch in enumerate(batches):
        assert (batch["version"][batch["sampled"]] == number).all()
        assert torch.equal(batch["old_log_prob"], batch["log_prob"])
