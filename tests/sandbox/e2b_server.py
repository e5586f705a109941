"""A small server that speaks E2B's protocol, for the unmodified SDK: sandboxes are folders, commands really run.

It stands for E2B's two ends: the API that makes and ends sandboxes, and the daemon inside one (files, processes). It
does not isolate: what runs is our own runner, which does. `faults` says what is to go wrong, once each, in order.
"""

import base64
import json
import re
import shutil
import subprocess
import threading
from collections import defaultdict
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

KEY = "e2b_" + "0" * 40


class E2BServer(ThreadingHTTPServer):
    """What the SDK takes for E2B."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.created: list[dict[str, Any]] = []
        self.alive: dict[str, Path] = {}
        self.killed: list[str] = []
        self.uploads: list[bytes] = []
        self.commands: list[str] = []
        self.faults: dict[str, list[Any]] = defaultdict(list)
        self.most = 100
        self.environment = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
        self.wrapper: list[str] = []
        self.processes: dict[subprocess.Popen[bytes], str] = {}
        self.on_read: Callable[[bytes], bytes] = lambda data: data
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def fault(self, where: str) -> Any:
        return self.faults[where].pop(0) if self.faults[where] else None

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        for process in list(self.processes):
            process.kill()


class _Handler(BaseHTTPRequestHandler):
    server: E2BServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self._body()
        path = urlparse(self.path).path
        if path == "/v2/sandboxes":
            return self._create(json.loads(body))
        if path.endswith("/timeout"):
            return self._json(204, None)
        if path == "/files":
            return self._upload(body)
        if path == "/process.Process/Start":
            return self._start(body)
        if path == "/process.Process/SendSignal":
            return self._json(200, {})
        self._json(404, {"code": 404, "message": f"no such path: {path}"})

    def do_DELETE(self) -> None:
        name = self.path.rsplit("/", 1)[1]
        if (fault := self.server.fault("kill")) is not None:
            return self._json(fault, {"code": fault, "message": "fault"})
        folder = self.server.alive.pop(name, None)
        for process in [process for process, owner in self.server.processes.items() if owner == name]:
            process.kill()
        self.server.killed.append(name)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        self._json(204 if folder is not None else 404, None if folder is not None else {"code": 404, "message": "gone"})

    def do_GET(self) -> None:
        url = urlparse(self.path)
        if url.path == "/health":
            return self._json(204, None)
        if (folder := self._folder()) is None:
            return
        if (fault := self.server.fault("read")) is not None:
            return self._json(fault, {"message": "fault"})
        file = folder / parse_qs(url.query)["path"][0]
        if not file.exists():
            return self._json(404, {"message": f"no file {file.name}"})
        self._bytes(200, self.server.on_read(file.read_bytes()), "application/octet-stream")

    def _create(self, wanted: dict[str, Any]) -> None:
        if self.headers.get("X-API-Key") != KEY:
            return self._json(401, {"code": 401, "message": "invalid API key"})
        if (fault := self.server.fault("create")) is not None:
            return self._json(fault, {"code": fault, "message": "fault"}, {"Should-Retry": "false"})
        if len(self.server.alive) >= self.server.most:
            return self._json(429, {"code": 429, "message": "too many sandboxes"}, {"Should-Retry": "false"})
        name = f"sandbox{len(self.server.created)}"
        self.server.created.append(wanted)
        folder = self.server.folder / name
        folder.mkdir()
        self.server.alive[name] = folder
        answer = {"sandboxID": name, "templateID": wanted["templateID"], "clientID": "x", "envdVersion": "0.6.2"}
        self._json(201, answer | {"envdAccessToken": "token", "domain": None})

    def _folder(self) -> Path | None:
        """The sandbox that a request of the daemon's is for; answers it where there is none."""
        name = self.headers.get("E2b-Sandbox-Id", "")
        if name not in self.server.alive:
            self._json(502, {"message": f"The sandbox {name} was not found", "code": 502})
            return None
        return self.server.alive[name]

    def _upload(self, body: bytes) -> None:
        if (folder := self._folder()) is None:
            return
        if (fault := self.server.fault("upload")) is not None:
            return self._json(fault, {"message": "fault"})
        name = parse_qs(urlparse(self.path).query)["path"][0]
        kind = self.headers["Content-Type"]
        if kind.startswith("multipart/"):
            mark = b"--" + re.findall(r'boundary="?([^";]+)', kind)[0].encode()
            body = body.split(mark)[1].partition(b"\r\n\r\n")[2][:-2]
        self.server.uploads.append(body)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(body)
        self._json(200, [{"path": name, "name": name, "type": "file"}])

    def _start(self, body: bytes) -> None:
        if (folder := self._folder()) is None:
            return
        fault = self.server.fault("start")
        if isinstance(fault, int):
            return self._json(fault, {"message": "fault"})
        wanted = json.loads(body[5:])["process"]
        command = [wanted["cmd"], *wanted["args"]]
        self.server.commands.append(wanted["args"][-1])
        if fault == "hang":
            command = ["sleep", "600"]
        if fault == "no python":
            command = ["bash", "-c", "echo bash: python3: command not found >&2; exit 127"]
        self.send_response(200)
        self.send_header("Content-Type", "application/connect+json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with subprocess.Popen(
            [*self.server.wrapper, *command],
            cwd=folder,
            env=self.server.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            self.server.processes[process] = folder.name
            self._event({"start": {"pid": process.pid}})
            if fault == "cut":
                process.kill()
                self.close_connection = True
                return
            for name, data in zip(("stdout", "stderr"), process.communicate(), strict=True):
                if data:
                    self._event({"data": {name: base64.b64encode(data).decode()}})
            self._event({"end": {"exitCode": process.returncode, "exited": True, "status": "exited"}})
            self.server.processes.pop(process, None)
        self._chunk(b"\x02" + len(b"{}").to_bytes(4, "big") + b"{}")
        self._chunk(b"")

    def _event(self, event: dict[str, Any]) -> None:
        data = json.dumps({"event": event}).encode()
        self._chunk(b"\x00" + len(data).to_bytes(4, "big") + data)

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            pieces = []
            while size := int(self.rfile.readline(), 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        self._bytes(status, b"" if value is None else json.dumps(value).encode(), "application/json", headers)

    def _bytes(self, status: int, data: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if status != 204:
            self.wfile.write(data)
