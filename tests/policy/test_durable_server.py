"""A graph goes on with its adapter after the policy server was killed and started again."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph.checkpoint.memory import InMemorySaver

from pot_agent import PotConfig, create_pot_agent
from pot_agent.config import GrpoConfig
from pot_agent.errors import PolicyUnavailableError
from pot_agent.policy.base import Completion
from pot_agent.policy.client import HttpPolicy
from pot_agent.policy.local import LocalPolicy
from tests.policy.serving import free_port
from tests.test_end_to_end import PROBLEM, Lowness
from tests.tiny import make_tiny_model

ROOT = Path(__file__).parents[2]
CONFIG = PotConfig.quick(iterations=3, max_new_tokens=12, max_prompt_tokens=480, grpo=GrpoConfig(learning_rate=1e-2))


@contextmanager
def server(model: Path, state: Path, port: int) -> Iterator["subprocess.Popen[bytes]"]:
    """`pot serve --state`, ready; killed at the end of the block, if not before."""
    options = ["serve", "--model", str(model), "--port", str(port), "--state", str(state)]
    process = subprocess.Popen(
        [sys.executable, "-c", "from pot_agent.cli import main; main()", *options],
        cwd=ROOT,
        env={**os.environ, "POT_THREADS": "1"},
    )
    try:
        deadline = time.monotonic() + 120
        while not _is_ready(port):
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server was not ready"
            time.sleep(0.1)
        yield process
    finally:
        process.kill()
        process.wait()


def _is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/ready").status_code == 200
    except httpx.TransportError:
        return False


class KillsItsServer(HttpPolicy):
    """The real client; the server is killed just before its n-th group is asked for."""

    victim: "subprocess.Popen[bytes] | None" = None
    groups_left = 0

    def sample(self, session: str, **arguments: Any) -> list[Completion]:
        self.groups_left -= 1
        if self.groups_left == 0 and self.victim is not None:
            self.victim.kill()
            self.victim.wait()
        return super().sample(session, **arguments)


def _run(graph: Any, given: dict[str, Any] | None) -> dict[str, Any]:
    solution: dict[str, Any] = graph.invoke(given, {"configurable": {"thread_id": "1"}})["solution"]
    return {name: value for name, value in solution.items() if name not in ("seconds", "model")}


def _kinds(folder: Path) -> Sequence[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


@pytest.mark.long
@pytest.mark.parametrize("group", [2, 3, 4, 5])
def test_a_graph_goes_on_after_its_server_was_killed(tmp_path: Path, sandbox: Any, group: int) -> None:
    model = make_tiny_model(tmp_path / "tiny", context=1024)
    with LocalPolicy(str(model), threads=1) as policy:
        undisturbed = _run(create_pot_agent(policy, sandbox, config=CONFIG, reward=Lowness()), PROBLEM)
    state, port = tmp_path / "state", free_port()
    with KillsItsServer(f"http://127.0.0.1:{port}") as client:
        with server(model, state, port) as process:
            graph = create_pot_agent(client, sandbox, config=CONFIG, reward=Lowness(), checkpointer=InMemorySaver())
            client.victim, client.groups_left = process, group
            with pytest.raises(PolicyUnavailableError):
                _run(graph, PROBLEM)
        assert len(_kinds(state)) == 1
        with server(model, state, port):
            solution = _run(graph, None)
            assert _kinds(state) == []  # the run has ended, and its adapter with it
    assert solution == undisturbed
    assert solution["updates"] == 3
