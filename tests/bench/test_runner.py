"""A run: every trial once, side by side, stopped in order, gone on with; and what ends it."""

import errno
import os
import tempfile
import time
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import pytest

from pot_agent.bench import manifest as manifests
from pot_agent.bench.manifest import FILE
from pot_agent.bench.results import SET_ASIDE, Results, key_of
from pot_agent.bench.runner import Progress
from pot_agent.bench.sharding import Shard
from pot_agent.errors import (
    CancelledError,
    ConfigError,
    DiskFullError,
    PolicyUnavailableError,
    RunFolderError,
)
from pot_agent.methods.parts.passing import PassingPolicy
from tests.bench.damages import DAMAGES
from tests.bench.running import (
    CONFIG,
    HALF,
    MODEL,
    ZERO,
    SteadyPolicy,
    arm,
    as_file,
    at_call,
    comparable,
    own_arm,
    plan,
    read,
    run,
    task,
    tasks,
)

ARMS = [arm("zero_shot"), arm("pot")]


def stopped(folder: Path, sandbox: Any, *, at: int = 4, **options: Any) -> SteadyPolicy:
    """A run that was cancelled at a call of the policy."""
    cancel = Event()
    policy = SteadyPolicy(at_call(at, cancel.set))
    with pytest.raises(CancelledError, match="go on with --resume"):
        run(plan(folder, options.pop("arms", ARMS), workers=1, **options), policy, sandbox, cancel=cancel)
    return policy


def whole(folder: Path, sandbox: Any, arms: Any = ARMS, **options: Any) -> list[dict[str, Any]]:
    """What an uninterrupted run of the same plan records."""
    return comparable(run(plan(folder, arms, **options), SteadyPolicy(), sandbox))


def test_every_arm_runs_once_on_every_problem_with_every_seed(sandbox: Any, tmp_path: Path) -> None:
    shown: list[Progress] = []

    def show(progress: Progress) -> None:
        if not shown:
            time.sleep(0.5)  # others end meanwhile
        shown.append(progress)

    records = run(plan(tmp_path / "r", ARMS, seeds=[3, 4], workers=4), SteadyPolicy(), sandbox, show=show)
    keys = [key_of(record) for record in records]
    assert sorted(keys) == sorted(
        (f"add/{number}", name, seed) for number in range(3) for name in ("zero_shot", "pot") for seed in (3, 4)
    )
    assert read(tmp_path / "r") == records
    assert [progress.done for progress in shown] == list(range(1, 13))
    assert {progress.total for progress in shown} == {12}
    assert shown[-1].seconds_left == 0
    assert all(progress.seconds_left is not None for progress in shown)


def test_problems_run_side_by_side_through_one_policy(sandbox: Any, tmp_path: Path) -> None:
    barrier = Barrier(3)  # nobody passes alone
    policy = SteadyPolicy(lambda call: barrier.wait(60) and None)
    assert len(run(plan(tmp_path / "r", [arm("zero_shot")], workers=3), policy, sandbox)) == 3
    assert len({call["session"] for call in policy.of("open")}) == 3


def test_two_runs_of_one_plan_record_the_same(sandbox: Any, tmp_path: Path) -> None:
    assert whole(tmp_path / "a", sandbox) == whole(tmp_path / "b", sandbox, workers=3)


def test_a_run_that_was_stopped_goes_on_where_it_was(sandbox: Any, tmp_path: Path) -> None:
    stopped(tmp_path / "r", sandbox)
    before = read(tmp_path / "r")
    assert 0 < len(before) < 6
    policy = SteadyPolicy()
    records = run(plan(tmp_path / "r", ARMS, resume=True), policy, sandbox)
    assert comparable(records) == whole(tmp_path / "whole", sandbox)
    assert read(tmp_path / "r")[: len(before)] == before
    assert len(policy.of("open")) == 6 - len(before)  # what was done is not done again
    assert run(plan(tmp_path / "r", ARMS, resume=True), policy, sandbox) == records


def test_a_torn_last_line_is_cut_off_and_its_problem_is_run_again(sandbox: Any, tmp_path: Path) -> None:
    expected = whole(tmp_path / "r", sandbox)
    path = tmp_path / "r" / "results.jsonl"
    path.write_bytes(path.read_bytes()[:-50])
    policy = SteadyPolicy()
    assert comparable(run(plan(tmp_path / "r", ARMS, resume=True), policy, sandbox)) == expected
    assert comparable(read(tmp_path / "r")) == expected
    assert len(policy.of("open")) == 1


def test_a_damaged_line_is_an_error_and_nothing_is_changed(sandbox: Any, tmp_path: Path) -> None:
    whole(tmp_path / "r", sandbox)
    path = tmp_path / "r" / "results.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    for damaged, said in (([b"{\n", *lines], "line 1 is not a record"), ([*lines, lines[0]], "a second record of")):
        path.write_bytes(b"".join(damaged))
        with pytest.raises(RunFolderError, match=said):
            run(plan(tmp_path / "r", ARMS, resume=True), SteadyPolicy(), sandbox)
        assert path.read_bytes() == b"".join(damaged)


def test_a_folder_with_results_is_refused_without_resume(sandbox: Any, tmp_path: Path) -> None:
    run(plan(tmp_path / "r", ARMS), SteadyPolicy(), sandbox)
    before, policy = read(tmp_path / "r"), SteadyPolicy()
    with pytest.raises(RunFolderError, match="go on with --resume"):
        run(plan(tmp_path / "r", ARMS), policy, sandbox)
    (tmp_path / "r" / FILE).unlink()
    with pytest.raises(RunFolderError, match=r"there is no manifest\.json beside it"):
        run(plan(tmp_path / "r", ARMS, resume=True), policy, sandbox)
    assert (read(tmp_path / "r"), policy.calls) == (before, [])


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"arms": [arm("zero_shot"), arm("pot", CONFIG.change(width=3))]}, r"methods\.pot\.config\.search\.width: 2"),
        ({"arms": [arm("zero_shot")]}, r"methods\.pot"),
        ({"given": tasks(2)}, r"data\.count: 3 there, 2 now"),
        ({"data": {"sha256": "1"}}, r'data\.sha256: "0" there, "1" now'),
        ({"seeds": [1]}, r"seeds: \[0\] there, \[1\] now"),
        ({"model": {"model": "other", "parameters": 10}}, r'model\.model: "scripted" there, "other" now'),
    ],
)
def test_going_on_with_something_else_is_refused_with_what_differs(
    sandbox: Any, tmp_path: Path, changed: dict[str, Any], named: str
) -> None:
    stopped(tmp_path / "r", sandbox)
    before, policy = read(tmp_path / "r"), SteadyPolicy()
    arms, given = changed.pop("arms", ARMS), changed.pop("given", None)
    with pytest.raises(RunFolderError, match=named):
        run(plan(tmp_path / "r", arms, given, resume=True, **changed), policy, sandbox)
    assert (read(tmp_path / "r"), policy.calls) == (before, [])


def test_a_folder_that_is_in_use_is_refused(sandbox: Any, tmp_path: Path) -> None:
    stopped(tmp_path / "r", sandbox)
    with (
        Results(tmp_path / "r" / "results.jsonl"),
        pytest.raises(RunFolderError, match=f"in use by process {os.getpid()}"),
    ):
        run(plan(tmp_path / "r", ARMS, resume=True), SteadyPolicy(), sandbox)
    assert len(run(plan(tmp_path / "r", ARMS, resume=True), SteadyPolicy(), sandbox)) == 6


def test_a_record_is_never_there_twice(sandbox: Any, tmp_path: Path) -> None:
    records = run(plan(tmp_path / "r", ARMS), SteadyPolicy(), sandbox)
    path = tmp_path / "r" / "results.jsonl"
    with Results(path) as results, pytest.raises(RunFolderError, match="a key is recorded once"):
        results.append(records[0])
    assert len(path.read_bytes().splitlines()) == 6


def test_a_full_disk_ends_the_run_and_leaves_whole_lines(
    sandbox: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = run(plan(tmp_path / "whole", ARMS), SteadyPolicy(), sandbox)
    path, write, room = tmp_path / "r" / "results.jsonl", os.write, len(str(records[0])) * 2

    def full(file: int, data: bytes) -> int:
        if os.readlink(f"/proc/self/fd/{file}") != str(path):
            return write(file, data)
        there = path.stat().st_size
        if there >= room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[: room - there])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(DiskFullError, match="go on with --resume"):
            run(plan(tmp_path / "r", ARMS), SteadyPolicy(), sandbox)
    assert path.read_bytes().endswith(b"\n")
    assert comparable(run(plan(tmp_path / "r", ARMS, resume=True), SteadyPolicy(), sandbox)) == comparable(records)


def failing_on(number: int, *, until: Event) -> Any:
    """A method that raises on one problem until the event is set; else PoT."""

    def build(policy: Any, sandbox: Any, config: Any) -> Any:
        class Fails(PassingPolicy):
            def sample(self, session: str, **asked: Any) -> Any:
                if f"number {number}." in str(asked["messages"]) and not until.is_set():
                    raise ValueError("not this one")
                return super().sample(session, **asked)

        return arm("pot").method.build(Fails(policy), sandbox, config)

    return build


def test_what_ended_in_an_error_is_run_again_when_that_is_asked_for(sandbox: Any, tmp_path: Path) -> None:
    mended = Event()
    arms = [own_arm("own", failing_on(1, until=mended))]
    first = run(plan(tmp_path / "r", arms), SteadyPolicy(), sandbox)
    assert [record["problem"] for record in first if record["error"]] == ["add/1"]
    mended.set()
    assert run(plan(tmp_path / "r", arms, resume=True), SteadyPolicy(), sandbox) == first
    policy = SteadyPolicy()
    again = run(plan(tmp_path / "r", arms, resume=True, retry=True), policy, sandbox)
    assert [record["error"] for record in again] == [None] * 3
    assert len(policy.of("open")) == 1
    assert comparable(read(tmp_path / "r")) == comparable(again)
    assert "not this one" in (tmp_path / "r" / SET_ASIDE).read_text()


def test_an_error_of_the_machine_ends_the_run_and_is_not_recorded(sandbox: Any, tmp_path: Path) -> None:
    def gone(call: int) -> None:
        if call >= 4:
            raise PolicyUnavailableError("the server is gone")

    with pytest.raises(PolicyUnavailableError, match="the server is gone"):
        run(plan(tmp_path / "r", ARMS, workers=2), SteadyPolicy(gone), sandbox)
    records = read(tmp_path / "r")
    assert len(records) < 6
    assert all(record["error"] is None for record in records)
    resumed = run(plan(tmp_path / "r", ARMS, resume=True), SteadyPolicy(), sandbox)
    assert comparable(resumed) == whole(tmp_path / "whole", sandbox)


def test_the_first_error_stops_the_others(sandbox: Any, tmp_path: Path) -> None:
    waiting, policy = Event(), SteadyPolicy()
    policy.wait = True

    def build(policy: Any, sandbox: Any, config: Any) -> Any:
        class One(PassingPolicy):
            def sample(self, session: str, **asked: Any) -> Any:
                if "number 0." in str(asked["messages"]):
                    assert self.inner.inner.sampling.wait(60)  # type: ignore[attr-defined]
                    raise PolicyUnavailableError("gone")
                waiting.set()
                return super().sample(session, **asked)

        return arm("pot").method.build(One(policy), sandbox, config)

    with pytest.raises(PolicyUnavailableError, match="gone"):
        run(plan(tmp_path / "r", [own_arm("own", build)], workers=2), policy, sandbox)
    assert waiting.is_set()
    assert policy.ended.is_set()  # the problem that waited was cancelled
    assert read(tmp_path / "r") == []


def test_a_replica_that_dies_gives_its_problems_to_the_others(sandbox: Any, tmp_path: Path) -> None:
    def dies(call: int) -> None:
        if call > 2:
            raise PolicyUnavailableError("killed")

    dying, well = SteadyPolicy(dies), SteadyPolicy()
    records = run(plan(tmp_path / "r", ARMS, workers=2), [dying, well], sandbox)
    assert comparable(records) == whole(tmp_path / "whole", sandbox)
    assert dying.samples > 2
    assert well.samples > 0


def test_a_problem_stays_on_one_replica(sandbox: Any, tmp_path: Path) -> None:
    replicas = [SteadyPolicy(), SteadyPolicy()]
    run(plan(tmp_path / "r", ARMS, seeds=[0, 1], workers=2), replicas, sandbox)
    sessions = [{call["session"] for call in replica.of("open")} for replica in replicas]
    assert all(sessions)
    assert not sessions[0] & sessions[1]
    for replica in replicas:
        assert {call["session"] for call in replica.of("close")} == {call["session"] for call in replica.of("open")}


def test_without_a_replica_left_the_run_ends_with_the_last_ones_error(sandbox: Any, tmp_path: Path) -> None:
    def dies(call: int) -> None:
        raise PolicyUnavailableError("killed")

    with pytest.raises(PolicyUnavailableError, match="killed"):
        run(plan(tmp_path / "r", ARMS, workers=2), [SteadyPolicy(dies), SteadyPolicy(dies)], sandbox)
    assert read(tmp_path / "r") == []


CHAIN = [arm("persistent"), arm("zero_shot")]


def test_one_adapter_goes_from_problem_to_problem_in_order_and_one_at_a_time(sandbox: Any, tmp_path: Path) -> None:
    policy = SteadyPolicy(texts=[ZERO, HALF])
    arms = [arm("persistent", CONFIG.change(width=6)), arm("zero_shot")]
    records = run(plan(tmp_path / "r", arms, seeds=[0, 1], workers=4), policy, sandbox)
    for seed in (0, 1):
        chain = [record for record in records if (record["method"], record["seed"]) == ("persistent", seed)]
        assert [record["problem"] for record in chain] == ["add/0", "add/1", "add/2"]
        versions = [row["version"] for record in chain for row in record["curve"]]
        updates = [record["ledger"]["updates"] for record in chain]
        assert versions == sorted(versions)
        assert versions[-1] == sum(updates) > max(updates)  # each went on from where the problem before had ended
    opened = {call["session"] for call in policy.of("open") if call["session"].startswith("pot-persistent")}
    assert len(opened) == 2
    assert policy.list_sessions() == []


def test_a_chain_that_was_broken_starts_at_its_first_problem_again(sandbox: Any, tmp_path: Path) -> None:
    stopped(tmp_path / "r", sandbox, arms=CHAIN, at=7)
    before = [record["problem"] for record in read(tmp_path / "r") if record["method"] == "persistent"]
    assert before
    assert len(before) < 3
    records = run(plan(tmp_path / "r", CHAIN, resume=True), SteadyPolicy(), sandbox)
    assert comparable(records) == whole(tmp_path / "whole", sandbox, CHAIN)
    assert comparable(read(tmp_path / "r")) == comparable(records)


def test_a_plan_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be run in parts"):
        plan(tmp_path, CHAIN, shard=Shard(index=1, count=2))
    with pytest.raises(ConfigError, match="pot is asked for twice"):
        plan(tmp_path, [arm("pot"), arm("pot")])
    with pytest.raises(ConfigError, match="pot:width=2 is asked for twice, as pot:k=2 too"):
        plan(tmp_path, [arm("zero_shot"), arm("pot:k=2"), arm("pot:width=2")])
    with pytest.raises(ConfigError, match="part 4 of 4 has no problem: there are 3"):
        plan(tmp_path, ARMS, shard=Shard(index=4, count=4))
    with pytest.raises(ConfigError, match="workers must be 1 or more"):
        plan(tmp_path, ARMS, workers=0)


def test_a_part_whose_folder_became_another_runs_while_it_measured_the_policy_is_refused(
    sandbox: Any, tmp_path: Path
) -> None:
    other = plan(tmp_path / "r", ARMS, data={"sha256": "1"}).manifest
    policy = SteadyPolicy()

    def another_is_faster(trials: Any) -> None:
        assert manifests.write(tmp_path / "r", other)

    part = plan(tmp_path / "r", ARMS, shard=Shard(index=2, count=2))
    with pytest.raises(RunFolderError, match=r'data\.sha256: "1" there, "0" now'):
        run(part, policy, sandbox, foresee=another_is_faster)
    assert (read(tmp_path / "r"), policy.calls) == ([], [])


def test_a_run_that_is_stopped_while_the_policy_is_measured_begins_nothing(sandbox: Any, tmp_path: Path) -> None:
    cancel, policy = Event(), SteadyPolicy()

    def stopped_in_the_middle(trials: Any) -> None:
        cancel.set()
        raise CancelledError("cancelled")

    for foresee in (lambda trials: cancel.set(), stopped_in_the_middle):
        cancel.clear()
        with pytest.raises(CancelledError, match="stopped with 0 of 6 done; go on with --resume"):
            run(plan(tmp_path / "r", ARMS), policy, sandbox, foresee=foresee, cancel=cancel)
    assert (read(tmp_path / "r"), policy.calls) == ([], [])
    assert len(run(plan(tmp_path / "r", ARMS, resume=True), policy, sandbox)) == 6


def test_a_context_that_the_memory_of_the_moment_allows_is_no_other_run(sandbox: Any, tmp_path: Path) -> None:
    stopped(tmp_path / "r", sandbox, model={**MODEL, "context_tokens": 13056})
    again = plan(tmp_path / "r", ARMS, resume=True, model={**MODEL, "context_tokens": 13824})
    assert len(run(again, SteadyPolicy(), sandbox)) == 6


def test_a_disk_that_is_full_before_the_first_record_is_an_error_that_says_so(
    sandbox: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**options: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(tempfile, "mkstemp", full)
        with pytest.raises(DiskFullError, match=r"the disk is full .*manifest\.json.*make room"):
            run(plan(tmp_path / "r", ARMS), SteadyPolicy(), sandbox)
    assert len(run(plan(tmp_path / "r", ARMS, resume=True), SteadyPolicy(), sandbox)) == 6


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
def test_no_damage_of_a_record_is_gone_on_from(sandbox: Any, tmp_path: Path, damage: Any) -> None:
    whole(tmp_path / "r", sandbox)
    path = tmp_path / "r" / "results.jsonl"
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([damage(lines[0]), *lines[1:], b""]))
    before = path.read_bytes()
    with pytest.raises(RunFolderError, match=r"line 1 is not a record: .*nothing was changed"):
        run(plan(tmp_path / "r", ARMS, resume=True), SteadyPolicy(), sandbox)
    assert path.read_bytes() == before


def test_a_file_of_tasks_is_read_as_those_tasks(tmp_path: Path) -> None:
    from pot_agent.bench.datasets import load

    given = [task(0), task(1, hidden=["assert add(3, 3) == 6"])]
    found = load(str(as_file(tmp_path, given))).tasks
    assert [(one.id, one.problem.text, tuple(one.hidden)) for one in found] == [
        (one.id, one.problem.text, tuple(one.hidden)) for one in given
    ]
