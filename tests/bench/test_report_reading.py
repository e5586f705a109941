"""Run folders as they are found: in parts, damaged, of another run, or no run at all."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pot_agent.bench.record import RECORD_VERSION
from pot_agent.bench.report import report
from pot_agent.bench.report.findings import findings_of
from pot_agent.bench.report.reading import natural, read_runs
from pot_agent.errors import ReportError
from tests.bench.damages import DAMAGES
from tests.bench.runs import manifest, record, write_run


def test_the_shards_of_a_run_are_one_run_in_one_folder_or_in_two(tmp_path: Path) -> None:
    ids = ["p/0", "p/1", "p/2", "p/3"]
    made = manifest(methods=["pot"], ids=ids)
    for place, folders in (("one", ("a", "a")), ("two", ("a", "b"))):
        for index, folder in enumerate(folders):
            own = [record(name) for name in ids[index::2]]
            write_run(tmp_path / place / folder, made, own, name=f"results-{index + 1}-of-2.jsonl")
        results = read_runs([tmp_path / place / folder for folder in dict.fromkeys(folders)])
        assert results.problems == ids
        assert findings_of(results)["methods"][0]["missing_records"] == 0


def test_a_shard_alone_says_what_is_missing(tmp_path: Path) -> None:
    made = manifest(methods=["pot"], ids=["p/0", "p/1"])
    folder = write_run(tmp_path, made, [record("p/0")], name="results-1-of-2.jsonl")
    assert findings_of(read_runs([folder]))["methods"][0]["missing_records"] == 1


def test_seeds_and_methods_may_come_from_runs_of_their_own(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a", manifest(methods=["pot"]), [record("p/0")])
    second = write_run(tmp_path / "b", manifest(methods=["pot"], seeds=[1]), [record("p/0", seed=1)])
    third = write_run(tmp_path / "c", manifest(methods=["mcts"]), [record("p/0", "mcts")])
    results = read_runs([first, second, third])
    assert {arm: list(cells) for arm, cells in results.arms.items()} == {
        "pot": [("p/0", 0), ("p/0", 1)],
        "mcts": [("p/0", 0)],
    }


def test_the_first_seed_of_a_run_makes_no_other_configuration(tmp_path: Path) -> None:
    for seed, place in enumerate(("a", "b")):
        made = manifest(methods=["pot"], seeds=[seed])
        made["methods"]["pot"]["config"]["seed"] = seed
        write_run(tmp_path / place, made, [record("p/0", seed=seed)])
    assert len(read_runs([tmp_path / "a", tmp_path / "b"]).arms["pot"]) == 2


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"benchmark": "mbpp"}, "benchmark 'humaneval' against 'mbpp'"),
        ({"data": {"sha256": "e" * 64, "ids": []}}, "data digest 'dddd.*' against 'eeee.*'"),
        ({"model": {"model": "large"}}, "model 'tiny' against 'large'"),
        ({"model": {"model": "tiny", "base_digest": "c" * 64}}, "digest of the weights"),
        (
            {"methods": {"pot": {"method": "pot", "learns": True, "config": {"search": {"width": 8}, "learn": True}}}},
            r"pot is configured differently.*config\.search\.width 3 against 8",
        ),
    ],
)
def test_runs_that_do_not_belong_together_are_refused_by_what_differs(
    tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    write_run(tmp_path / "a", manifest(methods=["pot"]), [record("p/0")])
    other = manifest(**{"methods": ["pot"], "seeds": [1]} | {k: v for k, v in changes.items() if k != "methods"})
    other["methods"] = changes.get("methods", other["methods"])
    write_run(tmp_path / "b", other, [record("p/0", seed=1, benchmark=other["benchmark"])])
    with pytest.raises(ReportError, match=named) as raised:
        read_runs([tmp_path / "a", tmp_path / "b"])
    assert str(tmp_path / "b") in str(raised.value)
    assert "make a report of each" in str(raised.value)


def test_a_model_behind_a_server_has_no_digest_and_belongs_all_the_same(tmp_path: Path) -> None:
    write_run(tmp_path / "a", manifest(methods=["pot"]), [record("p/0")])
    served = manifest(methods=["mcts"], model={"model": "tiny", "base_digest": None})
    write_run(tmp_path / "b", served, [record("p/0", "mcts")])
    results = read_runs([tmp_path / "a", tmp_path / "b"])
    assert list(results.arms) == ["pot", "mcts"]
    assert any("differ in model" in note for note in findings_of(results)["notes"])


@pytest.mark.parametrize("changes", [{"digest": "another row"}, {"visible_total": 2}, {"hidden_total": 9}])
def test_a_problem_that_was_another_one_for_another_method_is_refused(tmp_path: Path, changes: Any) -> None:
    records = [record("p/0"), record("p/0", "mcts", **changes)]
    with pytest.raises(ReportError, match=r"p/0 was not the same problem for pot and mcts"):
        read_runs([write_run(tmp_path, manifest(methods=["pot", "mcts"]), records)])


def test_a_record_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "a", manifest(methods=["pot"]), [record("p/0")])
    write_run(tmp_path / "b", manifest(methods=["pot"]), [record("p/0")])
    with pytest.raises(ReportError, match="p/0 by pot with seed 0 is there twice"):
        read_runs([tmp_path / "a", tmp_path / "b"])
    with pytest.raises(ReportError, match="named twice"):
        read_runs([tmp_path / "a", tmp_path / "b" / ".." / "a"])


def test_a_results_file_of_another_run_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, manifest(methods=["pot"]), [record("p/0", "mcts")])
    with pytest.raises(ReportError, match=r"line 1 of .*: mcts on humaneval is not in"):
        read_runs([tmp_path])


def test_a_folder_that_is_no_run_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for place in (tmp_path, tmp_path / "nowhere", tmp_path / "file"):
        with pytest.raises(ReportError, match=r"is not a run.*pot bench --out"):
            read_runs([place])
    with pytest.raises(ReportError, match="name one or more folders"):
        read_runs([])


@pytest.mark.parametrize("text", [b"{", b"\xff\xfe{", b"[" * 100_000])
def test_a_manifest_that_cannot_be_read_is_named(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(text)
    with pytest.raises(ReportError, match=r"manifest\.json cannot be read"):
        read_runs([tmp_path])


@pytest.mark.parametrize("with_file", [True, False])
def test_a_run_without_results_is_said_to_have_none_yet(tmp_path: Path, with_file: bool) -> None:
    write_run(tmp_path, manifest(methods=["pot"]), [])
    if not with_file:
        (tmp_path / "results.jsonl").unlink()
    with pytest.raises(ReportError, match="no results yet"):
        read_runs([tmp_path])


def test_a_method_without_results_is_left_out_and_named(tmp_path: Path) -> None:
    results = read_runs([write_run(tmp_path, manifest(methods=["pot", "mcts"]), [record("p/0")])])
    assert list(results.arms) == ["pot"]
    assert "mcts has no results yet" in results.notes


@pytest.mark.parametrize("version", [RECORD_VERSION + 1, None, "1"])
def test_another_version_of_the_format_is_refused(tmp_path: Path, version: Any) -> None:
    write_run(tmp_path / "a", manifest(methods=["pot"]), [record("p/0", record_version=version)])
    with pytest.raises(ReportError, match=rf"line 1 of .*: record version {version!r}.*reads {RECORD_VERSION} only"):
        read_runs([tmp_path / "a"])
    write_run(tmp_path / "b", manifest(methods=["pot"], record_version=version), [record("p/0")])
    with pytest.raises(ReportError, match=r"manifest\.json.*: record version"):
        read_runs([tmp_path / "b"])


@pytest.mark.parametrize("cut", [1, 40, 700])
def test_a_torn_last_line_is_left_out_counted_and_said(tmp_path: Path, cut: int) -> None:
    folder = write_run(tmp_path, manifest(methods=["pot"], ids=["p/0", "p/1"]), [record("p/0"), record("p/1")])
    path = folder / "results.jsonl"
    before = path.read_bytes()[:-cut]
    path.write_bytes(before)
    found = findings_of(read_runs([folder]))
    assert (found["torn_lines"], found["problems"], found["methods"][0]["missing_records"]) == (1, 1, 1)
    assert any("1 last line(s) were never finished" in note and str(path) in note for note in found["notes"])
    assert path.read_bytes() == before  # a report mends nothing


@pytest.mark.parametrize("line", [b"{torn", b"", b"\0\0\0", b"\xff", b"[" * 100_000])
def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path, line: bytes) -> None:
    folder = write_run(tmp_path, manifest(methods=["pot"]), [record("p/0"), record("p/1")])
    first, second = (folder / "results.jsonl").read_bytes().splitlines()
    (folder / "results.jsonl").write_bytes(b"\n".join([first, line, second, b""]))
    with pytest.raises(ReportError, match=r"line 2 of .*results\.jsonl: not JSON"):
        read_runs([folder])


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"hidden_passed": "perhaps"}, "hidden_passed"),
        ({"ledger": {}}, r"ledger\.calls"),
        ({"seed": None}, "seed"),
        ({"tree": [{"parent": None}]}, r"tree\.0\.iteration"),
    ],
)
def test_a_field_that_cannot_be_is_named_with_its_value(tmp_path: Path, changes: Any, named: str) -> None:
    with pytest.raises(ReportError, match=rf"line 1 of .*: {named}: "):
        read_runs([write_run(tmp_path, manifest(methods=["pot"]), [record("p/0", **changes)])])


def test_a_record_that_lacks_a_field_is_refused(tmp_path: Path) -> None:
    made: dict[str, Any] = {**record("p/0")}
    del made["hidden_total"]
    with pytest.raises(ReportError, match="hidden_total: Field required"):
        read_runs([write_run(tmp_path, manifest(methods=["pot"]), [made])])  # type: ignore[list-item]


def node(**changes: Any) -> Any:
    plain = {"parent": None, "iteration": 0, "committed": False, "program": None, "reward": None, "visits": 0}
    return {**plain, "value": 0.0, "prior": 1.0, **changes}


@pytest.mark.parametrize(
    "changes",
    [
        {"tree": [node(), node(parent=1)]},
        {"tree": [node(), node(parent=-1)]},
        {"tree": [node(), node()]},
        {"tree": [node(parent=0)]},
        {"tree": [node(), node(parent=0, program=0)]},
        {"tree": [node()], "committed_path": [0, 1]},
    ],
)
def test_a_tree_that_is_none_is_refused(tmp_path: Path, changes: Any) -> None:
    with pytest.raises(ReportError, match=r"node 0|node 1|committed path"):
        read_runs([write_run(tmp_path, manifest(methods=["pot"]), [record("p/0", **changes)])])


def test_numbers_that_are_not_finite_are_missing_and_the_report_is_json_all_the_same(tmp_path: Path) -> None:
    made = manifest(methods=["pot"], estimate={"hours": float("inf")})
    folder = write_run(tmp_path / "run", made, [record("p/0", tree=[node()])])
    path = folder / "results.jsonl"
    for text in ("NaN", "Infinity", "-Infinity", "1e999"):
        path.write_text(json.dumps(record("p/0", tree=[node()])).replace('"reward": null', f'"reward": {text}') + "\n")
        assert read_runs([folder]).arms["pot"]["p/0", 0]["tree"][0]["reward"] is None
    made_report = report([folder], tmp_path / "out")
    json.loads(made_report.data.read_text(), parse_constant=lambda name: pytest.fail(name))


def test_problems_are_in_the_order_of_their_numbers() -> None:
    assert sorted(["p/10", "p/9", "q", "p/010", "p/", "9", "10"], key=natural) == [
        "9", "10", "p/", "p/9", "p/010", "p/10", "q",
    ]  # fmt: skip


def test_a_report_writes_its_three_files_and_touches_nothing_else(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", manifest(methods=["pot"]), [record("p/0")])
    before = {path: path.read_bytes() for path in folder.iterdir()}
    made = report([folder], tmp_path / "deep" / "out")
    assert sorted(path.name for path in (tmp_path / "deep" / "out").iterdir()) == [
        "report.html", "report.json", "report.md",
    ]  # fmt: skip
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    again = report([folder], tmp_path / "deep" / "out")
    assert made.page.read_bytes() == again.page.read_bytes()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", manifest(methods=["pot"]), [record("p/0")])
    (tmp_path / "out").write_text("a file")
    with pytest.raises(ReportError, match="cannot be written to"):
        report([folder], tmp_path / "out")


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
def test_no_damage_of_a_record_is_reported_on(tmp_path: Path, damage: Any) -> None:
    folder = write_run(tmp_path, manifest(methods=["pot"], ids=["p/0", "p/1"]), [record("p/0"), record("p/1")])
    path = folder / "results.jsonl"
    first, second = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([damage(first), second, b""]))
    with pytest.raises(ReportError, match=r"line 1 of .*results\.jsonl: "):
        read_runs([folder])


@pytest.mark.parametrize("strange", [record("p/7"), record("p/0", seed=3)])
def test_a_record_that_was_never_planned_is_not_counted(tmp_path: Path, strange: Any) -> None:
    folder = write_run(tmp_path, manifest(methods=["pot"], ids=["p/0"]), [record("p/0"), strange])
    with pytest.raises(ReportError, match=r"line 2 of .*is not planned in .*manifest\.json"):
        read_runs([folder])


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"data": {"ids": 5}}, "data.ids must be a list of names, got 5"),
        ({"data": {"ids": [5]}}, "data.ids must be a list of names"),
        ({"budget": {"allowed": 5}}, "budget.allowed must be an object, got 5"),
        ({"methods": {"pot": {"config": 5}}}, "methods.pot.config must be an object, got 5"),
        ({"methods": {"pot": {"config": {"search": 5}}}}, "methods.pot.config.search must be an object, got 5"),
        ({"record_version": True}, "record version True"),
    ],
)
def test_a_manifest_that_cannot_be_is_named_with_its_value(tmp_path: Path, changes: Any, named: str) -> None:
    folder = write_run(tmp_path, manifest(methods=["pot"]), [record("p/0")])
    (folder / "manifest.json").write_text(json.dumps({**manifest(methods=["pot"]), **changes}))
    with pytest.raises(ReportError, match=re.escape(named)):
        read_runs([folder])
