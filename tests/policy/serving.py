"""A real policy server in a thread, on a port that the system chose; and what can go wrong on the way to it."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Event, Thread
from typing import Any

import httpx
import uvicorn

from pot_agent.errors import PotError
from pot_agent.policy.base import Completion, Message, Policy
from pot_agent.policy.local import LocalPolicy
from pot_agent.policy.server import KEEP_ALIVE_SECONDS, create_app

ASK: list[Message] = [{"role": "user", "content": "Write a function that adds two numbers."}]


@contextmanager
def serving(policy: Policy, *, port: int = 0, **options: Any) -> Iterator[str]:
    """The URL of `policy` behind HTTP; the end of the block ends the server, and with it the policy."""
    # the protocol is named because asyncio turns Nagle's delay off only on sockets that say they are TCP
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    app = create_app(policy, **options)
    config = uvicorn.Config(
        app, log_level="warning", timeout_keep_alive=KEEP_ALIVE_SECONDS, timeout_graceful_shutdown=5
    )
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, kwargs={"sockets": [sock]}, name="pot-server")
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server ended before it had started"
            time.sleep(0.01)
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        sock.close()


def free_port() -> int:
    """A port that nothing listens on just now."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


class WatchedPolicy(LocalPolicy):
    """The real policy at a pace at which a test can act: it tells when it samples, and how that ended."""

    def __init__(self, model: Path, *, token_seconds: float = 0.02, **options: Any) -> None:
        super().__init__(str(model), **options)
        self.token_seconds = token_seconds
        self.sampling = Event()
        self.outcomes: Queue[tuple[str, int]] = Queue()
        """How each `sample` ended (`done`, or the error's code), and how many tokens it had drawn."""

    def sample(self, session: str, **arguments: Any) -> list[Completion]:
        drawn = 0

        def pace(total: int) -> None:
            nonlocal drawn
            drawn = total
            self.sampling.set()
            time.sleep(self.token_seconds)

        try:
            found = super().sample(session, **{**arguments, "on_tokens": pace})
        except PotError as error:
            self.outcomes.put((error.code, drawn))
            raise
        self.outcomes.put(("done", drawn))
        return found


class _Forward(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        server: Any = self.server
        answer = httpx.post(server.upstream + self.path, content=body, headers={"Content-Type": "application/json"})
        server.forwarded.append(self.path)
        if server.lose > 0:
            server.lose -= 1
            self.close_connection = True
            return
        self.send_response(answer.status_code)
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


class LossyProxy(ThreadingHTTPServer):
    """Forwards calls to a server and loses the next `lose` answers: the call was made, and the caller never knows."""

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Forward)
        self.upstream = upstream
        self.lose = 0
        self.forwarded: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
