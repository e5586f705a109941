"""A graph goes on with its adapter after the policy server was killed and started again."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from pot_agent import PotConfig, create_pot_agent
from pot_agent.config import GrpoConfig
from pot_agent.errors import PolicyUnavailableError
from pot_agent.policy.base import Completion
from pot_agent.policy.client import HttpPolicy
from pot_agent.policy.local import LocalPolicy
from tests.policy.real_server import Process, real_server
from tests.policy.serving import free_port
from tests.test_end_to_end import PROBLEM, Lowness
from tests.tiny import make_tiny_model

CONFIG = PotConfig.quick(iterations=3, max_new_tokens=12, max_prompt_tokens=480, grpo=GrpoConfig(learning_rate=1e-2))


class KillsItsServer(HttpPolicy):
    """The real client; the server is killed just before its n-th group is asked for."""

    victim: Process | None = None
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
        with real_server(model, port, state=state) as process:
            graph = create_pot_agent(client, sandbox, config=CONFIG, reward=Lowness(), checkpointer=InMemorySaver())
            client.victim, client.groups_left = process, group
            with pytest.raises(PolicyUnavailableError):
                _run(graph, PROBLEM)
        assert len(_kinds(state)) == 1
        with real_server(model, port, state=state):
            solution = _run(graph, None)
            assert _kinds(state) == []  # the run has ended, and its adapter with it
    assert solution == undisturbed
    assert solution["updates"] == 3
