"""Sixteen graphs at once on one server that is killed in the middle and started again: none loses or repeats a step.

Each graph's whole run is compared with the same run alone and undisturbed, in process: sessions are sampled one after
the other here (POT_BATCH=0), so that equal means equal and not to rounding. A graph that saw another's adapter, trained
a step twice, or lost one would differ.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from pot_agent import PotConfig, create_pot_agent
from pot_agent.config import GrpoConfig
from pot_agent.errors import PolicyUnavailableError
from pot_agent.policy.base import Receipt
from pot_agent.policy.client import HttpPolicy
from pot_agent.policy.local import LocalPolicy
from tests.policy.real_server import Process, metrics_of, real_server
from tests.policy.serving import free_port
from tests.test_end_to_end import PROBLEM, Lowness
from tests.tiny import make_tiny_model

GRAPHS = 16
CONFIG = PotConfig.quick(
    iterations=3, width=4, max_new_tokens=12, max_prompt_tokens=480, grpo=GrpoConfig(learning_rate=1e-2)
)
THREAD: Any = {"configurable": {"thread_id": "1"}}


class Watched(HttpPolicy):
    """The real client; it tells of each update before it asks for it."""

    before_update: Callable[[], None] = staticmethod(lambda: None)

    def internalize(self, session: str, **arguments: Any) -> Receipt:
        self.before_update()
        return super().internalize(session, **arguments)


class Killer:
    """Kills the server while the n-th update is on its way, and up to fifteen other calls are."""

    def __init__(self, server: Process, update: int) -> None:
        self._server = server
        self._left = update
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                threading.Timer(0.01, self._server.kill).start()


def graph_of(policy: Any, sandbox: Any, seed: int) -> Any:
    config = CONFIG.change(seed=seed)
    return create_pot_agent(policy, sandbox, config=config, reward=Lowness(), checkpointer=InMemorySaver())


def outcome(graph: Any) -> dict[str, Any]:
    """What a run did: its solution, each of its programs, and its last receipt but for times and ids."""
    values = graph.get_state(THREAD).values
    solution = {name: value for name, value in values["solution"].items() if name not in ("seconds", "model")}
    receipt = {name: values["receipt"][name] for name in ("version", "total_steps", "adapter_norm", "loss_last")}
    return {"solution": solution, "receipt": receipt, "programs": [each["text"] for each in values["programs"]]}


def advance(graph: Any) -> bool:
    """Run from where the graph is; whether it came to its end."""
    try:
        graph.invoke(None if graph.get_state(THREAD).values else PROBLEM, THREAD)
    except PolicyUnavailableError:
        return False
    return True


@pytest.mark.long
@pytest.mark.parametrize("updates", [[8], [20, 14]], ids=["killed once", "killed twice"])
def test_sixteen_graphs_go_on_after_their_server_was_killed(tmp_path: Path, sandbox: Any, updates: list[int]) -> None:
    model = make_tiny_model(tmp_path / "tiny", context=1024)
    with LocalPolicy(str(model), threads=1, batch=False) as policy:
        alone = [graph_of(policy, sandbox, seed) for seed in range(GRAPHS)]
        assert all(advance(graph) for graph in alone)
    expected = [outcome(graph) for graph in alone]
    assert len({run["receipt"]["adapter_norm"] for run in expected}) == GRAPHS, "each adapter is another"

    state, port = tmp_path / "state", free_port()
    url = f"http://127.0.0.1:{port}"
    clients = [Watched(url) for _ in range(GRAPHS)]
    graphs: list[Any] = []
    with ThreadPoolExecutor(GRAPHS) as threads:
        for update in updates:
            with real_server(model, port, state=state, POT_BATCH="0") as server:
                graphs = graphs or [graph_of(client, sandbox, seed) for seed, client in enumerate(clients)]
                killer = Killer(server, update)
                for client in clients:
                    client.before_update = killer
                ended = list(threads.map(advance, graphs))
            assert not all(ended), "the server was killed after the last of them"
        for client in clients:
            client.before_update = lambda: None
        with real_server(model, port, state=state, POT_BATCH="0"):
            left = [graph for graph in graphs if graph.get_state(THREAD).next]
            assert all(threads.map(advance, left))
            assert metrics_of(url)["pot_sessions",] == 0
    for client in clients:
        client.shutdown()
    assert [outcome(graph) for graph in graphs] == expected
    assert all(run["receipt"]["total_steps"] == 3 * run["solution"]["updates"] > 0 for run in expected)
