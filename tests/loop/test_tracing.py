from __future__ import annotations

import os
import threading

from hooktrainer.loop.timing import Trace


def spans(trace):
    """Name, category, beginning and duration of every span, in the order of the file."""
    return [
        (event["name"], event["cat"], event["ts"], event["dur"])
        for event in trace.as_dict()["traceEvents"]
        if event["ph"] == "X"
    ]


def rows(trace):
    """Process and thread by name, and the spans of each, by their place."""
    found = {}
    for event in trace.as_dict()["traceEvents"]:
        row = found.setdefault((event["pid"], event["tid"]), {"spans": []})
        if event["ph"] == "X":
            row["spans"].append(event["name"])
        else:
            row[event["name"]] = next(iter(event["args"].values()))
    return found


def test_times_are_microseconds_since_the_first_span():
    trace = Trace()
    trace.add("collect/env", 10.0000015, 10.000002)
    trace.add("collect", 10.0, 10.25)
    trace.add("optimize/optimizer", 10.25, 10.5)
    assert spans(trace) == [
        ("collect", "phase", 0.0, 250_000.0),
        ("env", "collect", 1.5, 0.5),
        ("optimizer", "optimize", 250_000.0, 250_000.0),
    ]


def test_each_thread_has_a_row_with_its_name():
    trace = Trace()
    trace.add("optimize", 0.0, 1.0)
    other = threading.Thread(target=trace.add, args=("collect", 0.0, 1.0), name="collecting")
    other.start()
    other.join()
    pid = os.getpid()
    assert rows(trace) == {
        (pid, 1): {
            "process_name": "hooktrainer",
            "thread_name": threading.current_thread().name,
            "thread_sort_index": 1,
            "spans": ["optimize"],
        },
        (pid, 2): {
            "process_name": "hooktrainer",
            "thread_name": "collecting",
            "thread_sort_index": 2,
            "spans": ["collect"],
        },
    }


def test_spans_of_another_process_have_a_row_of_their_own():
    there = Trace()
    there.add("collect/env", 1.0, 2.0)
    sent = there.take()
    assert sent == [("collect/env", 1.0, 2.0)]
    assert there.take() == []

    trace = Trace()
    trace.add("optimize", 1.5, 2.5)
    for _ in range(2):
        trace.extend(sent, thread="collector 0", pid=4242)
    assert rows(trace)[4242, 2] == {
        "process_name": "collector 0",
        "thread_name": "collector 0",
        "thread_sort_index": 2,
        "spans": ["env", "env"],
    }
    assert spans(trace)[0] == ("optimize", "phase", 500_000.0, 1_000_000.0)


def test_a_trace_may_be_cut():
    trace = Trace()
    for start in (1.0, 2.0, 3.0):
        trace.add("step", start, start + 1)
    trace.add("optimize", 1.0, 1.5)
    trace.add("optimize", 2.0, 2.5)
    trace.extend([("collect", 1.5, 9.0), ("collect", 2.0, 3.0)], thread="collector")
    trace.cut("optimize")
    assert [name for name, *_ in spans(trace)] == ["step", "optimize", "collect"]
