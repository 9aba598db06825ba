"""A tracking server as small as can be, that fails in all the ways a server can."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

_API = "/api/2.0/mlflow/"


class FakeMLflow:
    """Serves one experiment on a loopback port, from a thread, until it is closed.

    Attributes:
        fail: Which requests are answered by an error, by their number: one in `fail`.
        lose: Likewise, of which the answer is lost: what was asked for is done all the same.
        runs: Tags, status, parameters and metrics of each run; metrics are (key, step, value).
    """

    def __init__(self, port: int = 0) -> None:
        self.fail = 0
        self.lose = 0
        self.requests = 0
        self.runs: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        self.uri = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> FakeMLflow:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, what: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if what == "experiments/get-by-name":
            return 200, {"experiment": {"experiment_id": "1", "name": "e"}}
        if what == "runs/create":
            run_id = f"{len(self.runs):032x}"
            tags = {tag["key"]: tag["value"] for tag in body["tags"]}
            self.runs[run_id] = {"tags": tags, "status": "RUNNING", "metrics": [], "params": {}}
            return 200, {"run": self._run(run_id)}
        if what == "runs/search":
            wanted = body["filter"].split("'")[1]
            found = [i for i, run in self.runs.items() if run["tags"]["hooktrainer.log"] == wanted]
            return 200, {"runs": [self._run(run_id) for run_id in found]}
        run = self.runs[body["run_id"]]
        if what == "runs/get":
            return 200, {"run": self._run(body["run_id"])}
        if what == "runs/update":
            run["status"] = body["status"]
            return 200, {"run_info": self._run(body["run_id"])["info"]}
        if what == "runs/log-batch":
            for metric in body.get("metrics", ()):
                row = (metric["key"], int(metric["step"]), float(metric["value"]))
                run["metrics"].append(row)
            run["params"] |= {param["key"]: param["value"] for param in body.get("params", ())}
            run["tags"] |= {tag["key"]: tag["value"] for tag in body.get("tags", ())}
            return 200, {}
        return 404, {"error_code": "ENDPOINT_NOT_FOUND", "message": what}

    def _run(self, run_id: str) -> dict[str, Any]:
        run = self.runs[run_id]
        latest = {row[0]: row for row in sorted(run["metrics"], key=lambda row: row[1])}
        names = ("key", "step", "value")
        return {
            "info": {
                "run_id": run_id,
                "run_uuid": run_id,
                "experiment_id": "1",
                "status": run["status"],
                "lifecycle_stage": "active",
            },
            "data": {
                "metrics": [
                    {"timestamp": 0, **dict(zip(names, row, strict=True))}
                    for row in latest.values()
                ],
                "params": [{"key": k, "value": v} for k, v in run["params"].items()],
                "tags": [{"key": k, "value": v} for k, v in run["tags"].items()],
            },
        }

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = parse_qs(urlparse(self.path).query)
                self._serve({key: values[0] for key, values in query.items()})

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                self._serve(json.loads(self.rfile.read(length) or b"{}"))

            def _serve(self, body: dict[str, Any]) -> None:
                with fake._lock:
                    fake.requests += 1
                    number = fake.requests
                    if fake.fail and number % fake.fail == 0:
                        code, content = 500, {"error_code": "INTERNAL_ERROR", "message": "now"}
                    else:
                        code, content = fake.answer(urlparse(self.path).path.split(_API)[-1], body)
                if fake.lose and number % fake.lose == 0:
                    self.close_connection = True
                    return
                data = json.dumps(content).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None: ...

        return Handler


class SilentServer:
    """Accepts every connection, and never answers."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.uri = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> SilentServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def closed_port() -> int:
    """A port without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
