"""A server that has served a thousand sessions is as it was: memory, threads, files, sessions."""

from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from pot_agent.config import LoraConfig
from pot_agent.policy.client import HttpPolicy
from tests.policy.real_server import metrics_of, open_files, real_server, resident_bytes, threads_of
from tests.policy.serving import ASK, free_port

LORA = LoraConfig(rank=4, alpha=8.0)
WARM_UP = 300
CYCLES = 1000
STEP = 100
SLACK_BYTES = 1_500
"""What a cycle may leave to the allocator; the samples of one cycle alone are more."""


def cycles(policy: HttpPolicy, count: int, name: str) -> None:
    for index in range(count):
        session = f"{name}-{index}"
        policy.open(session, lora=LORA, seed=index)
        drawn = policy.sample(session, version=0, messages=ASK, n=8, max_tokens=16, seed=index)
        assert len(drawn) == 8
        policy.close(session)


@pytest.mark.long
@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "with a state folder"])
def test_a_thousand_sessions_leave_nothing_behind(tiny: Path, tmp_path: Path, kept: bool) -> None:
    port, state = free_port(), tmp_path / "state" if kept else None
    url = f"http://127.0.0.1:{port}"
    with real_server(tiny, port, state=state) as process, HttpPolicy(url) as policy:
        cycles(policy, WARM_UP, "warm")
        before = threads_of(process), open_files(process)
        memory = [resident_bytes(process)]
        for step in range(CYCLES // STEP):
            cycles(policy, STEP, f"counted-{step}")
            memory.append(resident_bytes(process))
        after = threads_of(process), open_files(process)
        found = metrics_of(url)
        assert policy.list_sessions() == []
    # A leak grows in every step. Memory that comes in one step alone, wherever from, is none: the median leaves it out.
    growth = median(later - earlier for earlier, later in pairwise(memory)) / STEP
    assert growth < SLACK_BYTES, f"{growth:,.0f} bytes a cycle stay: {memory}"
    assert after[0] <= before[0] + 2, "threads stay"
    assert after[1] <= before[1] + 1, "files stay"
    assert found["pot_sessions",] == found["pot_calls_in_flight",] == 0
    assert found["pot_requests_total", "sample", "200"] == WARM_UP + CYCLES
    assert state is None or [path.name for path in state.iterdir() if path.is_dir()] == []
