"""The firewall: what only hidden tests say is nowhere but in the grader's sandbox, whatever a method is and wherever.

Each place is searched for two words: one that stands in a visible test, which must be found there (or the search looks
at nothing), and one that stands in hidden tests, their set-up and the benchmark's own grader, which must not.
"""

import os
import pickle
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver

from pot_agent import create_pot_agent
from pot_agent.bench.task import Grade, Task
from pot_agent.bench.trial import Trial, attempt, graded
from pot_agent.methods import METHODS
from pot_agent.methods.parts.passing import PassingPolicy, PassingSandbox
from pot_agent.policy.base import Policy
from pot_agent.policy.client import HttpPolicy
from pot_agent.problem import AssertTest
from pot_agent.sandbox.base import Sandbox
from tests.bench.running import CONFIG, GOOD, HALF, ZERO, SteadyPolicy, Tap, arm, task
from tests.policy.serving import serving

SEEN, CANARY = "visible_word_71", "hidden_word_93"
CALLS = ("count_tokens", "open", "sample", "score", "internalize", "snapshot", "restore", "close")


def official(program: str, sandbox: Sandbox, cancel: Event | None) -> Grade:
    judged = sandbox.judge(program, [AssertTest(code=f"assert add(7, 7) == 14, 'official {CANARY}'")])
    return Grade(passed=judged.passed, total=judged.total, verdict=judged.verdict)


@pytest.fixture
def planted() -> Task:
    """A task whose hidden parts all hold the canary."""
    visible = [f"assert add(1, 2) == 3, {SEEN!r}", f"assert add(2, 2) == 4, {SEEN!r}"]
    hidden = [f"assert add(5, 5) == 10, 'test {CANARY}'", f"assert add(0, 0) == 0, {CANARY!r}"]
    whole = task(0, visible=visible, hidden=hidden)
    return replace(whole, hidden_setup=f"SETUP = 'setup {CANARY}'", official=official)


def holds(word: str, what: Any) -> bool:
    return word.encode() in (what if isinstance(what, bytes) else repr(what).encode())


class Heard(PassingPolicy):
    """A policy that keeps everything that it was asked, by every method that a policy has."""

    def __init__(self, inner: Policy, kept: list[Any]) -> None:
        super().__init__(inner)
        self.kept = kept

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in CALLS:
            return found

        def heard(*given: Any, **asked: Any) -> Any:
            self.kept.append((name, given, asked))
            return found(*given, **asked)

        return heard


class Given(PassingSandbox):
    """A sandbox that keeps all that it was given, and what its processes show of themselves."""

    def __init__(self, inner: Sandbox) -> None:
        super().__init__(inner)
        self.given: list[Any] = []
        self.processes: list[bytes] = []

    def judge(self, program: str, tests: Any, **asked: Any) -> Any:
        self.given.append((program, list(tests), asked))
        judged = self.inner.judge(program, tests, **asked)
        self.processes += [shown for pid in descendants(os.getpid()) for shown in shows(pid)]
        return judged


def descendants(pid: int) -> Iterator[int]:
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in thread.read_text().split()]
        except OSError:  # the thread ended meanwhile
            continue
        for child in children:
            yield child
            yield from descendants(child)


def shows(pid: int) -> Iterator[bytes]:
    for name in ("cmdline", "environ"):
        try:
            yield Path(f"/proc/{pid}/{name}").read_bytes()
        except OSError:  # ended meanwhile, or not ours to read
            continue


def tried(planted: Task, policy: Policy, sandbox: Any, build: Any = None, config: Any = CONFIG) -> Any:
    return attempt(planted.problem, build or arm("pot").method.build, config, policy, sandbox)


def texts() -> SteadyPolicy:
    return SteadyPolicy(texts=[ZERO, HALF])


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_methods_policy_and_sandbox_are_never_shown_hidden_tests(planted: Task, sandbox: Any, name: str) -> None:
    heard: list[Any] = []
    doors = Given(sandbox)
    made = tried(planted, Heard(texts(), heard), doors, METHODS[name].build)
    assert made["error"] is None
    assert {"open", "sample"} <= {called for called, *_ in heard}
    assert holds(SEEN, heard)
    assert holds(SEEN, doors.given)
    assert not holds(CANARY, heard)
    assert not holds(CANARY, doors.given)
    assert not holds(CANARY, made)


def test_tests_that_a_model_writes_come_without_hidden_ones(planted: Task, sandbox: Any) -> None:
    heard: list[Any] = []
    doors = Given(sandbox)
    tried(planted, Heard(texts(), heard), doors, config=CONFIG.change(generated_tests=2))
    assert holds(SEEN, heard)
    assert not holds(CANARY, [heard, doors.given])


def test_the_sandboxes_processes_show_nothing_hidden(planted: Task, sandbox: Any) -> None:
    doors = Given(sandbox)
    tried(planted, texts(), doors)
    assert holds("boot.py", b"".join(doors.processes))
    assert holds("LC_CTYPE=", b"".join(doors.processes))
    assert not holds(CANARY, b"".join(doors.processes))


def test_neither_the_state_nor_the_bytes_of_its_checkpoints_hold_hidden_tests(
    planted: Task, sandbox: Any, tmp_path: Path
) -> None:
    path, states = tmp_path / "checkpoints.sqlite", []

    def build(policy: Any, sandbox: Any, config: Any) -> Any:
        graph = create_pot_agent(policy, sandbox, config=config, checkpointer=saver)

        class Watched:
            def stream(self, given: Any, settings: Any, **options: Any) -> Any:
                yield from graph.stream(given, settings, **options)
                states.extend(graph.get_state_history(settings))

        return Watched()

    connection = sqlite3.connect(path, check_same_thread=False)
    saver = SqliteSaver(connection)
    assert tried(planted, texts(), sandbox, build)["error"] is None
    connection.commit()
    connection.close()
    stored = b"".join(file.read_bytes() for file in tmp_path.glob("checkpoints.sqlite*"))
    assert len(states) > 3
    assert holds(SEEN, states)
    assert holds(SEEN, stored)
    assert not holds(CANARY, states)
    assert not holds(CANARY, stored)


def test_no_request_to_a_policy_server_holds_hidden_tests(planted: Task, sandbox: Any) -> None:
    with serving(texts()) as upstream, Tap(upstream) as tap:
        with HttpPolicy(tap.url) as policy:
            assert tried(planted, policy, sandbox)["error"] is None
        sent = b"".join(tap.sent)
    assert sent.count(b"POST /v1/sessions/") > 5
    assert holds(SEEN, sent)
    assert not holds(CANARY, sent)


def test_the_grader_is_shown_all_of_it(planted: Task, sandbox: Any) -> None:
    methods, grader = Given(sandbox), Given(sandbox)
    trial = Trial(task=planted, arm=arm("zero_shot"), seed=0)
    policy = SteadyPolicy(texts=[GOOD])
    made = attempt(planted.problem, trial.arm.method.build, trial.config, policy, methods)
    record = graded(trial, made, grader)
    assert (record["correct"], record["official"], record["hidden_passed"]) == (True, True, 2)
    for where in ("test", "setup", "official"):
        assert holds(f"{where} {CANARY}", grader.given)
    assert not holds(CANARY, methods.given)
    assert not holds(CANARY, policy.calls)
    assert not holds(CANARY, record)


def test_neither_a_log_line_nor_what_travels_with_a_trial_shows_hidden_tests(planted: Task) -> None:
    assert CANARY not in repr(planted)
    trial = Trial(task=planted, arm=arm("pot"), seed=0)
    travels = pickle.dumps((trial.task.problem, trial.arm.method.name, trial.config))
    assert holds(SEEN, travels)
    assert not holds(CANARY, travels)


WRONG = """
from typing import Any

from pot_agent.bench.task import Task
from pot_agent.bench.trial import attempt


def wrong(task: Task, *rest: Any) -> None:
    attempt(task, lambda policy, sandbox, config: None, *rest)
"""


@pytest.mark.long
def test_giving_a_method_the_task_is_an_error_of_types(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(WRONG)
    found = subprocess.run([sys.executable, "-m", "mypy", str(path)], capture_output=True, text=True, check=False)
    assert 'Argument 1 to "attempt" has incompatible type "Task"; expected "Problem"' in found.stdout
