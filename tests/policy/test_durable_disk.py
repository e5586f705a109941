"""A disk that is full, or fails, at any write: the session stays as it was."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pot_agent.errors import (
    DiskFullError,
    StateFolderError,
)
from pot_agent.policy.local import LocalPolicy
from tests.policy.contract import GRPO
from tests.policy.durable import (
    LORA,
    again,
    draw,
    essence,
    folder_of,
    grown,
    in_memory,
    learn,
    on_disk,
    process,
    versions_in,
)


class FailingDisk:
    """Lets the n-th call that writes fail, and counts them."""

    CALLS = ("open", "pwrite", "fsync", "ftruncate", "rename", "replace", "mkdir")

    def __init__(self, patch: pytest.MonkeyPatch, fails_at: int, number: int = errno.ENOSPC) -> None:
        self.calls, self.failed = 0, False
        self._at, self._number = fails_at, number
        for name in self.CALLS:
            patch.setattr(os, name, self._wrapped(name, getattr(os, name)))

    def _wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls == self._at:
                self.failed = True
                if name == "pwrite":
                    call(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2], arguments[2])
                raise OSError(self._number, os.strerror(self._number), str(arguments[0]))
            return call(*arguments, **options)

        return wrapped


OPERATIONS: dict[str, Callable[[LocalPolicy], Any]] = {
    "sample": lambda policy: draw(policy, 7, 2),
    "update": lambda policy: policy.internalize("s", version=2, rewards=_rewards(policy, 1.0), grpo=GRPO),
    "skipped update": lambda policy: policy.internalize("s", version=2, rewards=_rewards(policy, 0.0), grpo=GRPO),
    "snapshot": lambda policy: policy.snapshot("s"),
}


def _rewards(policy: LocalPolicy, first: float) -> dict[str, float]:
    names = [s.sample_id for s in in_memory(policy).journal._samples.values() if s.version == 2]
    return {name: first * (place == 0) for place, name in enumerate(names)}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_full_disk_at_any_write_leaves_the_session_as_it_was(
    tiny: Path, state: Path, tmp_path: Path, operation: str
) -> None:
    with process(tiny, state) as policy:
        grown(policy, 2)
        draw(policy, 2, 2)
        failures = 0
        for at in range(1, 100):
            before = essence(in_memory(policy))
            call = OPERATIONS[operation]
            with pytest.MonkeyPatch.context() as patch:
                disk = FailingDisk(patch, at)
                try:
                    call(policy)
                    break
                except DiskFullError:
                    failures += 1
            assert essence(in_memory(policy)) == before
            assert on_disk(policy, state, tmp_path / "copy") == before
        assert failures >= {"snapshot": 3, "update": 10}.get(operation, 4), disk.calls
        assert on_disk(policy, state, tmp_path / "copy") == essence(in_memory(policy)) != before


class SyncWatch:
    """Knows which files and folders were changed and not synced since: what a power failure could take back."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.dirty: set[str] = set()
        self.renamed_dirty: set[str] = set()
        """What was given its name although something in it was not on the disk."""
        self._paths: dict[int, str] = {}
        self._real = {name: getattr(os, name) for name in FailingDisk.CALLS}
        for name in FailingDisk.CALLS:
            patch.setattr(os, name, getattr(self, name))

    def open(self, path: Any, flags: int, *rest: Any, **options: Any) -> int:
        descriptor: int = self._real["open"](path, flags, *rest, **options)
        self._paths[descriptor] = str(path)
        if flags & os.O_CREAT:
            self.dirty |= {str(path), os.path.dirname(path)}
        return descriptor

    def pwrite(self, descriptor: int, *rest: Any) -> int:
        self.dirty.add(self._paths[descriptor])
        written: int = self._real["pwrite"](descriptor, *rest)
        return written

    def ftruncate(self, descriptor: int, length: int) -> None:
        self._real["ftruncate"](descriptor, length)
        self.dirty.add(self._paths[descriptor])

    def fsync(self, descriptor: int) -> None:
        self._real["fsync"](descriptor)
        self.dirty.discard(self._paths[descriptor])

    def mkdir(self, path: Any, *rest: Any, **options: Any) -> None:
        self._real["mkdir"](path, *rest, **options)
        self.dirty |= {str(path), os.path.dirname(path)}

    def rename(self, source: Any, target: Any) -> None:
        self._real["rename"](source, target)
        self.renamed_dirty |= {path for path in self.dirty if path == str(source) or path.startswith(f"{source}/")}
        self.dirty |= {os.path.dirname(source), os.path.dirname(target)}

    replace = rename


def test_everything_is_on_the_disk_before_it_is_answered_and_before_it_has_its_name(tiny: Path, state: Path) -> None:
    """What kill -9 cannot show: the system's own memory survives a killed process, but not a power failure."""
    calls: list[Callable[[LocalPolicy], Any]] = [
        lambda policy: policy.open("s", lora=LORA),
        lambda policy: draw(policy, 0, 0),
        lambda policy: learn(policy, 1, 0),
        lambda policy: policy.snapshot("s"),
        lambda policy: learn(policy, 2, 1, equal=True),
        lambda policy: learn(policy, 3, 1),
        lambda policy: learn(policy, 4, 2),
        lambda policy: learn(policy, 5, 3),  # version 2 goes
        lambda policy: policy.close("s"),
    ]
    with process(tiny, state) as policy:
        policy.open("warm", lora=LORA)
        for at, call in enumerate(calls):
            with pytest.MonkeyPatch.context() as patch:
                watch = SyncWatch(patch)
                call(policy)
            assert (watch.dirty, watch.renamed_dirty) == (set(), set()), at
    assert policy.is_shut_down


def test_a_full_disk_while_old_versions_are_removed_costs_nothing(tiny: Path, state: Path, tmp_path: Path) -> None:
    with process(tiny, state) as policy:
        receipts = grown(policy, 2)
        for step in range(2, 9):
            with pytest.MonkeyPatch.context() as patch:
                disk = FailingDisk(patch, 19 + step)  # 4 writes are the group's, 16 the update's, and then come these
                receipts.append(learn(policy, step, step))
                assert disk.failed
            assert on_disk(policy, state, tmp_path / "copy") == essence(in_memory(policy))
        learn(policy, 9, 9)
        assert versions_in(state) == {"9", "10"}
        assert [again(policy, receipt) for receipt in receipts] == receipts


def test_a_full_disk_at_an_open_leaves_no_session(tiny: Path, state: Path) -> None:
    with process(tiny, state) as policy:
        policy.open("warm", lora=LORA)  # the base's digest is known, and its file opened, before the disk fails
        policy.close("warm")
        for at in range(1, 100):
            with pytest.MonkeyPatch.context() as patch:
                FailingDisk(patch, at)
                try:
                    policy.open("s", lora=LORA)
                    break
                except DiskFullError:
                    pass
            assert len(policy._sessions) == 0
            assert [path.name for path in state.iterdir() if not path.name.startswith(".gone")] == [".lock"]
        assert at > 10
        assert learn(policy, 0, 0).version == 1


def test_an_input_output_error_is_no_full_disk(tiny: Path, state: Path) -> None:
    with process(tiny, state) as policy:
        grown(policy, 1)
        for at in (2, 4):
            with pytest.MonkeyPatch.context() as patch:
                FailingDisk(patch, at, errno.EIO)
                with pytest.raises(StateFolderError, match="Input/output error"):
                    draw(policy, 1, 1)
        assert learn(policy, 1, 1).version == 2


def test_a_state_folder_removed_under_the_policy_is_an_error_that_says_so(tiny: Path, state: Path) -> None:
    with process(tiny, state) as policy:
        grown(policy, 1)
        shutil.rmtree(folder_of(state))
        with pytest.raises(StateFolderError, match="No such file"):
            draw(policy, 1, 1)
        policy.close("s")
        assert policy.open("s", lora=LORA).version == 0


FULL = """
import sys
from pathlib import Path
from pot_agent.errors import DiskFullError
from pot_agent.policy.local import LocalPolicy
from tests.policy.durable import draw, essence, grown, in_memory, learn, on_disk
state, model, copy = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
with LocalPolicy(model, threads=1, state_dir=state / "s") as policy:
    grown(policy, 1)
    (state / "filler").write_bytes(bytes(2**20 - 160_000))
    seen = []
    for step in range(1, 200):
        before = essence(in_memory(policy))
        try:
            learn(policy, step, in_memory(policy).version)
        except DiskFullError as error:
            samples = essence(in_memory(policy))
            assert samples["counters"] == before["counters"] and samples["tensors"] == before["tensors"]
            assert on_disk(policy, state / "s", copy) == samples
            seen.append(step)
            if len(seen) == 3:
                break
    assert len(seen) == 3, seen
    (state / "filler").unlink()
    assert learn(policy, 500, in_memory(policy).version).skipped is None
print("held", seen)
"""


def test_a_disk_that_is_really_full_is_survived(tiny: Path, tmp_path: Path) -> None:
    """A file system of 1 MiB, mounted in namespaces of its own."""
    place = tmp_path / "small"
    place.mkdir()
    inside = 'mount -t tmpfs -o size=1m none "$0" && shift 0 && exec "$1" -c "$2" "$0" "$3" "$4"'
    probe = subprocess.run(["unshare", "-Urm", "sh", "-c", 'mount -t tmpfs none "$0"', str(place)], capture_output=True)
    if probe.returncode:
        pytest.skip("this machine lets nobody mount in a user namespace")
    arguments = [str(place), sys.executable, FULL, str(tiny), str(tmp_path / "copy")]
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", inside, *arguments],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith("held")
