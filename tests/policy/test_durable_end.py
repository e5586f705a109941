"""One process at a time in a state folder, and how sessions in it end."""

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pot_agent.errors import (
    PolicyUnavailableError,
    PotError,
    SessionNotFoundError,
    StateFolderError,
)
from pot_agent.policy.local import LocalPolicy
from pot_agent.policy.sessions import Sessions
from tests.policy.contract import ASK
from tests.policy.durable import LORA, draw, essence, folder_of, grown, in_memory, on_disk, process


def test_a_second_policy_on_one_state_folder_is_refused(tiny: Path, state: Path) -> None:
    with process(tiny, state) as policy:
        with pytest.raises(StateFolderError, match=f"in use by process {os.getpid()}") as caught:
            LocalPolicy(str(tiny), state_dir=state)
        assert isinstance(caught.value, OSError)
        code = "import pathlib, sys; from pot_agent.policy.state_folder import StateFolder as Folder; "
        code += "Folder(pathlib.Path(sys.argv[1]), seconds=1)"
        done = subprocess.run(
            [sys.executable, "-c", code, str(state)], capture_output=True, text=True, cwd=Path(__file__).parents[2]
        )
        assert f"in use by process {os.getpid()}" in done.stderr
        policy.open("s")
    with process(tiny, state) as policy:
        assert policy.restore("s").version == 0


def test_a_forked_child_that_ends_leaves_the_lock_with_its_parent(state: Path) -> None:
    code = (
        "import os, pathlib, sys; from pot_agent.policy.state_folder import StateFolder\n"
        "from pot_agent.errors import StateFolderError\n"
        "path = pathlib.Path(sys.argv[1]); folder = StateFolder(path, seconds=1)\n"
        "if os.fork() == 0: sys.exit()\n"
        "os.wait()\n"
        "try: StateFolder(path, seconds=1)\n"
        "except StateFolderError: print('held')\n"
        "folder.release(); StateFolder(path, seconds=1); print('free')"
    )
    command = [sys.executable, "-c", code, str(state)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.stdout.split() == ["held", "free"], done.stderr


def test_a_model_that_does_not_load_leaves_the_state_folder_free(tiny: Path, state: Path) -> None:
    with pytest.raises(FileNotFoundError):
        LocalPolicy("/nowhere", state_dir=state)
    with process(tiny, state):
        pass


def test_a_state_folder_that_cannot_be_is_refused(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nowhere")):
        with pytest.raises(StateFolderError, match="cannot be used"):
            LocalPolicy(str(tiny), state_dir=place)


def test_a_policy_that_was_shut_down_writes_nothing_more(tiny: Path, state: Path) -> None:
    with process(tiny, state) as policy:
        grown(policy, 1)
        session = in_memory(policy)
    with process(tiny, state) as successor:
        successor.restore("s")
        with pytest.raises(SessionNotFoundError, match="closed during the call"):
            session.record([])
        with pytest.raises(PolicyUnavailableError):
            draw(policy, 1, 1)
        policy.close("s")
        assert successor.restore("s").version == 1
        assert folder_of(state).is_dir()


@pytest.mark.parametrize("name", ["../../up", "/etc/x", ".", "a/b", "\u00e9" * 200])
def test_a_name_is_never_a_path(tiny: Path, state: Path, name: str) -> None:
    with process(tiny, state) as policy:
        policy.open(name)
        assert len(folder_of(state).name) == 32
        assert list(state.parent.iterdir()) == [state]
    with process(tiny, state) as policy:
        assert policy.restore(name).session == name
        policy.close(name)
    assert [path.name for path in state.iterdir()] == [".lock"]


def test_closing_removes_the_folder_also_of_a_session_that_is_not_in_memory(tiny: Path, state: Path) -> None:
    with process(tiny, state) as policy:
        grown(policy, 2)
        policy.close("s")
        assert [path.name for path in state.iterdir()] == [".lock"]
        assert policy.open("s", lora=None, seed=8).version == 0
    with process(tiny, state) as policy:
        policy.close("s")
        policy.close("s")
        with pytest.raises(SessionNotFoundError, match="never opened here, or was closed; "):
            policy.restore("s")
    assert [path.name for path in state.iterdir()] == [".lock"]


def test_a_removal_that_is_killed_leaves_no_session(tiny: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with process(tiny, state) as policy:
        grown(policy, 1)
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "rmtree", lambda *_, **__: None)  # as if killed before the content went
            policy.close("s")
        with pytest.raises(SessionNotFoundError):
            policy.restore("s")
    with process(tiny, state) as policy:
        with pytest.raises(SessionNotFoundError):
            policy.restore("s")
        assert [path.name for path in state.iterdir()] == [".lock"]


def test_a_call_whose_session_was_closed_writes_nothing_into_its_successor(
    tiny: Path, state: Path, tmp_path: Path
) -> None:
    with process(tiny, state) as policy:
        policy.open("s", lora=LORA)

        renewed = threading.Event()

        def renew(_: int) -> None:
            if in_memory(policy).seed == 0:
                policy.close("s")
                policy.open("s", lora=LORA, seed=1)
                renewed.set()

        with pytest.raises(SessionNotFoundError, match="closed during the call"):
            policy.sample("s", version=0, messages=ASK, max_tokens=1, on_tokens=renew)
        assert renewed.wait(30)  # the call may have ended before: its session was closed
        assert on_disk(policy, state, tmp_path / "copy")["samples"] == []
        assert in_memory(policy).journal._samples == {}


def test_a_lease_frees_memory_and_keeps_the_folder(tiny: Path, state: Path) -> None:
    with process(tiny, state) as policy:
        now = 0.0
        store = policy._sessions._store
        policy._sessions = Sessions(most=1, lease_seconds=10.0, store=store, clock=lambda: now)
        grown(policy, 1)
        before = essence(in_memory(policy))
        now = 11.0
        policy.open("other", seed=1)  # the cap is one session in memory
        assert len(policy._sessions) == 1
        with pytest.raises(PotError, match="cap is 1"):
            policy.restore("s")
        now = 22.0
        assert policy.restore("s").version == 1
        assert essence(in_memory(policy)) == before
        assert len(policy._sessions) == 1


def test_a_folder_nobody_used_is_removed_by_age_at_the_next_open_and_the_error_says_so(
    tiny: Path, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with process(tiny, state, state_seconds=1000.0) as policy:
        grown(policy, 1)
        policy.open("kept")
    _age(state, 2000.0)
    with process(tiny, state, state_seconds=10_000.0) as policy:
        policy.restore("kept")
    with process(tiny, state, state_seconds=1000.0) as policy:  # removed at the start
        assert "session 's' was unused for more than 1000 s and is removed" in caplog.text
        assert policy.restore("kept").session == "kept"
        with pytest.raises(SessionNotFoundError):
            policy.restore("s")
        policy.open("old")
        del policy._sessions._open["old"]  # as its lease does
        _age(state, 2000.0)
        policy.open("new")
        with pytest.raises(SessionNotFoundError, match=r"expired: .* 1000 s \(state_seconds\)"):
            policy.restore("old")
        assert policy.restore("kept").session == "kept"  # in memory, so in use


def _age(state: Path, seconds: float) -> None:
    then = time.time() - seconds
    for path in state.rglob("*"):
        os.utime(path, (then, then))
