"""What a graph is built over: told from what is no policy without being asked anything."""

from typing import Any

import pytest

from pot_agent import PotConfig, create_pot_agent
from pot_agent.errors import CannotLearnError, ConfigError, PolicyUnavailableError
from pot_agent.handles import as_policy
from pot_agent.policy.client import HttpPolicy
from tests.fakes import ScriptedPolicy
from tests.policy.serving import free_port


def test_a_graph_over_a_server_that_is_down_is_built_and_says_so_when_it_runs(sandbox: Any) -> None:
    with HttpPolicy(f"http://127.0.0.1:{free_port()}") as policy:
        graph = create_pot_agent(policy, sandbox, config=PotConfig.quick())
        with pytest.raises(PolicyUnavailableError, match="pot serve"):
            graph.invoke({"problem": "Write add(a, b)."})


class Shy(ScriptedPolicy):
    """One whose capabilities cost something, as a client's do."""

    def __init__(self) -> None:
        super().__init__([])

    @property
    def capabilities(self) -> Any:
        raise ConnectionError("asked")

    @capabilities.setter
    def capabilities(self, value: Any) -> None:
        """The scripted policy's own."""


def test_telling_a_policy_from_other_things_asks_it_nothing() -> None:
    shy = Shy()
    assert as_policy(shy) is shy


def test_an_object_without_one_of_the_calls_is_refused_by_the_name_of_the_call() -> None:
    class Half:
        def sample(self) -> None:
            """And nothing else."""

    with pytest.raises(ConfigError, match="Half, which has no capabilities"):
        as_policy(Half())  # type: ignore[arg-type]


def test_a_policy_in_process_that_cannot_learn_is_still_refused_when_the_graph_is_built() -> None:
    with pytest.raises(CannotLearnError):
        create_pot_agent(ScriptedPolicy([], learns=False), config=PotConfig.quick())
