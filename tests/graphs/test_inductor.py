"""What inductor keeps between runs: it is found again, and nothing else is taken for it."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache

from hooktrainer.graphs import Graph, inductor


def looked_up() -> tuple[str, torch.Tensor]:
    """Whether inductor's cache had a graph, and what this computes."""
    counters.clear()
    graph = Graph(lambda a, b: torch.bmm(a, b).tanh(), "a product")
    torch.manual_seed(0)
    out = graph(torch.randn(3, 5, 4), torch.randn(3, 4, 6))
    (found,) = (
        name.removeprefix("fxgraph_cache_")
        for name in counters["inductor"]
        if name.startswith("fxgraph_cache_")
    )
    assert counters["aot_autograd"][f"autograd_cache_{found}"] == 1
    return found, out


@pytest.mark.slow
@pytest.mark.usefixtures("inductor")
def test_a_graph_is_found_again_where_all_it_depends_on_is_the_same(monkeypatch):
    with fresh_cache():
        missed, first = looked_up()
        found, again = looked_up()
        assert (missed, found) == ("miss", "hit")
        assert torch.equal(first, again)

        with monkeypatch.context() as other:
            other.setattr(inductor, "_this_code", lambda: "other code")
            assert looked_up()[0] == "miss"
        with monkeypatch.context() as other:
            other.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "another processor")
            assert looked_up()[0] == "miss"
        torch.set_num_threads(2)  # for which sums are divided
        assert looked_up()[0] == "miss"


def test_results_of_a_cuda_graph_are_copies():
    buffer = torch.zeros(2)
    call = inductor.copied(lambda x: [buffer.copy_(x), None])
    first, nothing = call(torch.ones(2))
    second, _ = call(torch.full((2,), 2.0))
    assert (first.tolist(), second.tolist(), nothing) == ([1.0, 1.0], [2.0, 2.0], None)
