"""What a record shows of a run is what the run did."""

import itertools
from typing import Any

import pytest

from pot_agent import PotConfig, create_pot_agent
from pot_agent.bench.trial import attempt, graded
from pot_agent.bench.watching import Watched, watch
from pot_agent.errors import StateError
from tests.bench.running import CONFIG, GOOD, HALF, ZERO, arm, task
from tests.fakes import ScriptedPolicy, block

OTHER = block("def add(a, b):\n    return 4")


def watched(sandbox: Any, script: list[str], **changes: Any) -> Watched:
    found = Watched()
    graph = create_pot_agent(ScriptedPolicy(script), sandbox, config=CONFIG.change(**changes))
    watch(graph, task(0).problem, found)
    return found


def test_a_row_of_the_curve_has_the_rewards_of_its_group_and_the_version_after_it(sandbox: Any) -> None:
    first, second = watched(sandbox, [ZERO, HALF, ZERO, ZERO, OTHER, GOOD]).curve
    assert (first["iteration"], first["rewards"], first["version"], first["skipped"]) == (1, [0.0, 0.5], 1, None)
    assert second["rewards"] == [0.0, 0.5]
    assert (first["tokens"], second["tokens"]) == (30, 60)
    assert 0 < first["seconds"] <= second["seconds"]


def test_a_skipped_update_says_why_and_keeps_the_version(sandbox: Any) -> None:
    (row,) = watched(sandbox, [ZERO, ZERO, ZERO], iterations=1).curve
    assert row["version"] == 0
    assert row["skipped"] == "all rewards are equal"


def test_the_tree_its_programs_and_the_committed_path_are_those_of_the_run(sandbox: Any) -> None:
    found = watched(sandbox, [ZERO, HALF, OTHER, ZERO, HALF, GOOD])
    assert found.solution["solved"]
    tree, programs = found.tree, found.programs
    assert tree[0] == {**tree[0], "parent": None, "program": None, "reward": None}
    assert [node["reward"] for node in tree[1:4]] == [0.0, 0.5, 0.5]
    assert [node["committed"] for node in tree[1:4]] == [False, False, True]
    path = found.committed_path
    assert path[0] == 0
    assert all(tree[child]["parent"] == parent for parent, child in itertools.pairwise(path))
    newest = tree[path[-1]]
    assert newest["committed"]
    assert programs[newest["program"]]["verdict"] == "passed"  # type: ignore[index]
    assert len(programs) == len({program["text"] for program in programs})


def test_a_run_that_raises_keeps_what_it_had_shown(sandbox: Any) -> None:
    class Breaks(ScriptedPolicy):
        def internalize(self, session: str, **asked: Any) -> Any:
            raise ZeroDivisionError("no such luck")

    made = attempt(task(0).problem, arm().method.build, CONFIG, Breaks([ZERO, HALF]), sandbox)
    assert made["error"] == "ZeroDivisionError: no such luck"
    assert [row["rewards"] for row in made["curve"]] == [[0.0, 0.5]]
    assert len(made["tree"]) == 3
    assert made["ledger"]["completion_tokens"] == 20


def test_a_graph_that_answers_nothing_is_an_error_that_says_what_a_method_answers() -> None:
    class Mute:
        def stream(self, *given: Any, **options: Any) -> Any:
            return iter([("values", {"tree": []})])

    with pytest.raises(StateError, match="without a `solution`"):
        watch(Mute(), task(0).problem, Watched())


def test_numbers_that_are_not_finite_become_none_in_the_curve() -> None:
    found = Watched()
    found.event({"event": "update", "iteration": 1, "version": 1, "loss": float("nan"), "kl": float("inf")})
    assert (found.curve[0]["loss"], found.curve[0]["kl"]) == (None, None)


def test_an_answer_is_correct_where_it_passes_hidden_and_visible_tests_and_only_there(sandbox: Any) -> None:
    from pot_agent.bench.trial import Trial

    def record(script: list[str], **tests: Any) -> Any:
        asked = task(0, **tests)
        made = attempt(asked.problem, arm().method.build, CONFIG, ScriptedPolicy(script), sandbox)
        return graded(Trial(task=asked, arm=arm(), seed=0), made, sandbox)

    right = record([GOOD])
    assert (right["correct"], right["visible_solved"], right["hidden_passed"], right["hidden_total"]) == (
        True,
        True,
        2,
        2,
    )
    fits_visible_only = record([HALF], visible=["assert add(1, 2) == 3"])
    assert (fits_visible_only["visible_solved"], fits_visible_only["correct"]) == (True, False)
    fits_hidden_only = record([HALF], visible=["assert add(2, 2) == 4"], hidden=["assert add(1, 2) == 3"])
    assert (fits_hidden_only["hidden_passed"], fits_hidden_only["correct"]) == (1, False)
    nothing = record(["```python\n```"])
    assert (nothing["correct"], nothing["hidden_passed"], nothing["hidden_total"]) == (False, 0, 2)


def test_learning_off_is_said_in_each_row(sandbox: Any) -> None:
    config = PotConfig.quick(iterations=1, width=2, learn=False)
    found = Watched()
    watch(create_pot_agent(ScriptedPolicy([ZERO, HALF, ZERO]), sandbox, config=config), task(0).problem, found)
    assert found.curve[0]["skipped"] == "learning is off"
