"""What the runner writes is what the report reads: real runs, a scripted policy, a real sandbox."""

import json
from pathlib import Path

from pot_agent.bench.report import report
from pot_agent.bench.report.reading import read_runs
from pot_agent.bench.report.trees import packed_problems, unpack
from pot_agent.bench.sharding import Shard
from pot_agent.sandbox.local import LocalSandbox
from tests.bench import running


def test_a_report_of_a_run_in_two_shards_has_every_method_tree_and_update(
    tmp_path: Path, sandbox: LocalSandbox
) -> None:
    arms = [running.arm(name) for name in ("zero_shot", "mcts", "pot")]
    tasks = running.tasks(4)
    records = []
    for index in (1, 2):
        plan = running.plan(tmp_path / "run", arms, tasks, shard=Shard(index=index, count=2))
        records += running.run(plan, running.SteadyPolicy(), sandbox)
    made = report([tmp_path / "run"], tmp_path / "out")
    data = json.loads(made.data.read_text())
    assert (data["problems"], data["notes"], data["baseline"]) == (4, [], "mcts")
    rows = {row["arm"]: row for row in data["methods"]}
    assert [(row["records"], row["missing_records"], row["learns"]) for row in rows.values()] == [
        (4, 0, False), (4, 0, False), (4, 0, True),
    ]  # fmt: skip
    for arm, row in rows.items():
        own = [record for record in records if record["method"] == arm]
        assert row["pass_at_1"]["value"] == sum(record["correct"] for record in own) / 4
        assert row["updates_made"] == sum(record["ledger"]["updates"] for record in own)
    assert rows["pot"]["updates_made"] > 0
    assert data["spending"][0]["ratios"]["programs"] is not None
    assert {"tokens", "seconds", "gap", "best", "reward"} <= set(data["plots"])
    trees = {run["method"]: run for run in unpack(packed_problems(read_runs([tmp_path / "run"]))[0]["packed"] or "")}
    assert trees["pot"]["tree"][0]["parent"] is None
    assert all(node["program"] is not None for node in trees["pot"]["tree"][1:])
