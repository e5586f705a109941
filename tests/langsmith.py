"""What stands for LangSmith's API on this machine: it takes runs in batches, as its client sends them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

_INGEST = {
    "use_multipart_endpoint": False,
    "size_limit": 100,
    "size_limit_bytes": 20_000_000,
    "scale_up_qsize_trigger": 1000,
    "scale_up_nthreads_limit": 1,
    "scale_down_nempty_trigger": 4,
}
INFO = {"version": "0.10.0", "batch_ingest_config": _INGEST}


class _Api(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer(INFO)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server: Any = self.server
        server.bodies.append(body)
        self._answer({})

    def _answer(self, value: Any) -> None:
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


class LangSmith(ThreadingHTTPServer):
    """A server whose `bodies` are all that was sent to it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Api)
        self.bodies: list[bytes] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def runs(self) -> dict[str, dict[str, Any]]:
        """Each run by its id, what was sent of it later put over what was sent first."""
        found: dict[str, dict[str, Any]] = {}
        for body in self.bodies:
            for sent in (run for kind in ("post", "patch") for run in json.loads(body).get(kind) or ()):
                found.setdefault(sent["id"], {}).update({name: value for name, value in sent.items() if value})
        return found


@contextmanager
def langsmith() -> Iterator[LangSmith]:
    """The server, on a port of its own."""
    with LangSmith() as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()
