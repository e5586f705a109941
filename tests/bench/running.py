"""What the tests of the runner share: small tasks with hidden tests, a plan over them, and arms of one budget."""

import hashlib
import json
import socket
import socketserver
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from pot_agent.bench import manifest as manifests
from pot_agent.bench.arms import Arm, parse_arm
from pot_agent.bench.record import Record
from pot_agent.bench.results import key_of
from pot_agent.bench.runner import Here, Plan, run_benchmark
from pot_agent.bench.sharding import choose
from pot_agent.bench.task import Task
from pot_agent.config import PotConfig
from pot_agent.methods.base import Build, Method
from pot_agent.policy.base import Completion
from pot_agent.problem import AssertTest, Problem
from tests.fakes import ScriptedPolicy, block
from tests.policy.serving import serving

GOOD = block("def add(a, b):\n    return a + b")
HALF = block("def add(a, b):\n    return 3")
ZERO = block("def add(a, b):\n    return None")
MODEL: dict[str, Any] = {"model": "scripted", "parameters": 10}
CONFIG = PotConfig.quick(iterations=2, width=2, max_new_tokens=8)


def task(number: int, *, visible: Sequence[str] = (), hidden: Sequence[str] = ()) -> Task:
    """`add`, numbered: two visible tests and two hidden ones unless said."""
    tests = list(visible) or ["assert add(1, 2) == 3", "assert add(2, 2) == 4"]
    return Task(
        id=f"add/{number}",
        benchmark="add",
        kind="function",
        problem=Problem.parse({"problem": f"Write add(a, b), number {number}.", "tests": tests}),
        hidden=tuple(AssertTest(code=code) for code in hidden or ["assert add(5, 5) == 10", "assert add(0, 0) == 0"]),
        digest=str(number),
    )


def tasks(count: int = 3) -> list[Task]:
    return [task(number) for number in range(count)]


def arm(text: str = "pot", config: PotConfig = CONFIG) -> Arm:
    return parse_arm(text, config)


def own_arm(name: str, build: Build, **options: Any) -> Arm:
    """An arm of a method that a test writes."""
    return Arm(name=name, method=Method(name=name, summary=name, build=build, **options), config=CONFIG)


def plan(out: Path, arms: Sequence[Arm], given: Sequence[Task] | None = None, **options: Any) -> Plan:
    choice = choose(tasks() if given is None else given)
    seeds = options.pop("seeds", [0])
    manifest = manifests.manifest_of(
        name=out.name,
        command=["pot", "bench"],
        benchmark="add",
        data=options.pop("data", {"sha256": "0"}),
        choice=choice,
        arms=arms,
        seeds=seeds,
        model=options.pop("model", MODEL),
        budget={"matched_by": "programs"},
    )
    return Plan(out=out, choice=choice, arms=arms, seeds=seeds, manifest=manifest, **{"workers": 2, **options})


class SteadyPolicy(ScriptedPolicy):
    """Answers by what it is asked (prompt, seed, place in the group) alone, so that two runs can be compared.

    `before` is called with the number of each call of `sample`, from 1, before it is answered. Thread-safe.
    """

    def __init__(self, before: Callable[[int], None] = lambda call: None, *, texts: Sequence[str] = ()) -> None:
        super().__init__([ZERO])
        self._texts = list(texts) or [ZERO, HALF, ZERO, HALF, GOOD]
        self._before, self._lock, self.samples = before, Lock(), 0

    def sample(self, session: str, **asked: Any) -> list[Completion]:
        with self._lock:
            self.samples += 1
            call = self.samples
        self._before(call)
        with self._lock:
            drawn = super().sample(session, **asked)
        said = "".join(message["content"] for message in asked["messages"])
        return [
            replace(completion, text=self._texts[_number(said, asked.get("seed", 0), at) % len(self._texts)])
            for at, completion in enumerate(drawn)
        ]


def at_call(number: int, do: Callable[[], Any]) -> Callable[[int], None]:
    """Do something at the n-th call of `sample`."""
    return lambda call: do() if call == number else None


def _number(*parts: Any) -> int:
    return hashlib.sha256(repr(parts).encode()).digest()[0]


def run(plan: Plan, policy: Any, sandbox: Any, **options: Any) -> list[Record]:
    """The plan, with one sandbox for methods and grader: a test that tells them apart gives two."""
    policies = policy if isinstance(policy, list) else [policy]
    return run_benchmark(plan, Here(policies, sandbox), sandbox, **options)


def comparable(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Records without what differs between two runs that do the same: times, memory, the process; by key."""
    found = []
    for record in sorted(records, key=key_of):
        kept: dict[str, Any] = {name: value for name, value in record.items() if name not in ("started", "worker")}
        ledger = record["ledger"]
        kept["ledger"] = {name: value for name, value in ledger.items() if name not in ("seconds", "peak_mb")}
        kept["curve"] = [{**row, "seconds": 0.0} for row in record["curve"]]
        found.append(kept)
    return found


def read(folder: Path) -> list[Record]:
    """Every record in a run's folder, read as they lie there."""
    files = sorted(folder.glob("results*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def as_file(folder: Path, given: Sequence[Task]) -> Path:
    """The tasks as a JSON Lines file of one's own."""
    rows = [
        {
            "id": one.id,
            "problem": one.problem.text,
            "tests": [test.code for test in one.problem.tests if isinstance(test, AssertTest)],
            "hidden_tests": [test.code for test in one.hidden if isinstance(test, AssertTest)],
            "hidden_setup": one.hidden_setup,
        }
        for one in given
    ]
    path = folder / "add.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


class Tap(socketserver.ThreadingTCPServer):
    """Passes bytes between a client and a server, and keeps those that the client sends."""

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Pass)
        self.upstream = ("127.0.0.1", int(upstream.rpartition(":")[2]))
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.sent: list[bytes] = []
        self.open: list[socket.socket] = []
        Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def __exit__(self, *_: object) -> None:
        """Nobody gets through any more, also those who are connected."""
        self.shutdown()
        self.server_close()
        for connection in self.open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Pass(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        server: Any = self.server
        with socket.create_connection(server.upstream) as upstream:
            server.open += [self.request, upstream]
            Thread(target=self._back, args=(upstream,), daemon=True).start()
            with suppress(OSError):
                while data := self.request.recv(1 << 16):
                    server.sent.append(data)
                    upstream.sendall(data)
                upstream.shutdown(socket.SHUT_RDWR)

    def _back(self, upstream: socket.socket) -> None:
        with suppress(OSError):
            while data := upstream.recv(1 << 16):
                self.request.sendall(data)


@contextmanager
def dying_server(call: int) -> Iterator[tuple[SteadyPolicy, str]]:
    """A policy server that nobody reaches any more from within the n-th call of `sample` on."""
    doors: list[Tap] = []
    policy = SteadyPolicy(at_call(call, lambda: doors[0].__exit__()))
    with serving(policy) as upstream:
        doors.append(Tap(upstream))
        try:
            yield policy, doors[0].url
        finally:
            doors[0].__exit__()
