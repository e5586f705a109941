"""LiveCodeBench's rows: private tests are plain data or an error, and stay packed until they are run."""

import base64
import json
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest

from pot_agent.bench.datasets.safe_pickle import decode_private_tests
from pot_agent.bench.grading import grade_hidden, visible
from pot_agent.errors import DatasetError
from pot_agent.problem import CallTest, StdinTest
from pot_agent.prompts import build_messages
from pot_agent.sandbox import LocalSandbox
from tests.bench.rows import LCB, rows_of, solutions, tasks_of, write

STDIN, FUNCTION = "standin_centauri_prime", "standin_MBPP_11"


def packed(value: Any) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


def changed(tmp_path: Path, name: str, **fields: Any) -> Path:
    row = next(row for row in rows_of(LCB) if row["question_id"] == name)
    return write(tmp_path / "test5.jsonl", row | fields)


class Evil:
    """What must never be built."""

    def __reduce__(self) -> Any:
        return (Path("/tmp/pot-evil").touch, ())


@pytest.mark.parametrize("value", [Evil(), [Evil()], {1: Path}, print, complex(1, 2)])
def test_a_pickle_that_asks_for_any_class_is_refused(value: Any) -> None:
    with pytest.raises(DatasetError, match="row 1: private tests are not plain data: it asks for"):
        decode_private_tests(packed(value), "row 1")
    assert not Path("/tmp/pot-evil").exists()


@pytest.mark.parametrize(
    ("encoded", "message"),
    [
        ("!!", "damaged"),
        ("ä", "damaged"),
        (base64.b64encode(b"no zlib").decode(), "damaged"),
        (packed("[]")[:12], "damaged"),
        (base64.b64encode(zlib.compress(b"no pickle")).decode(), "not plain data"),
        (base64.b64encode(zlib.compress(pickle.dumps("[]")[:-2])).decode(), "not plain data"),
        (packed(["text"]), "must be JSON text, got list"),
        (packed(b"text"), "must be JSON text|asks for"),
    ],
)
def test_private_tests_that_are_broken_are_an_error(encoded: str, message: str) -> None:
    with pytest.raises(DatasetError, match=f"row 1: .*({message})"):
        decode_private_tests(encoded, "row 1")


def test_what_private_tests_inflate_to_is_bounded() -> None:
    bomb = packed("0" * 1_000_000)
    assert len(bomb) < 3_000
    with pytest.raises(DatasetError, match=r"row 1: .*more than 100,000 bytes"):
        decode_private_tests(bomb, "row 1", most_bytes=100_000)
    assert len(decode_private_tests(bomb, "row 1")) == 1_000_000


def test_public_tests_are_visible_and_private_ones_hidden() -> None:
    tasks = tasks_of("lcb_v5:partial", LCB)
    stdin, function = tasks[STDIN], tasks[FUNCTION]
    assert (stdin.kind, len(stdin.problem.tests), len(stdin.hidden)) == ("stdin", 3, 20)
    assert (function.kind, function.problem.entry_point) == ("function", "Solution.remove_Occ")
    assert all(isinstance(test, StdinTest) and test.compare == "lcb" for test in stdin.hidden)
    assert function.problem.tests == (CallTest(args=("hello", "l"), expected="heo", rel=0.0, abs=0.0),)
    assert not {test.input for test in stdin.problem.tests if isinstance(test, StdinTest)} & {
        test.input for test in stdin.hidden if isinstance(test, StdinTest)
    }


def test_hidden_tests_stay_in_the_file_until_they_are_asked_for(tmp_path: Path) -> None:
    path = changed(tmp_path, STDIN)
    task = tasks_of("lcb_v5:partial", path)[STDIN]
    assert len(pickle.dumps(task)) < 20_000
    assert tuple(pickle.loads(pickle.dumps(task)).hidden) == tuple(task.hidden)
    path.unlink()
    with pytest.raises(DatasetError, match="cannot be read any more"):
        tuple(task.hidden)


def test_a_private_test_that_repeats_a_public_one_is_dropped(tmp_path: Path) -> None:
    public = json.loads(rows_of(LCB)[0]["public_test_cases"])
    more = [{"input": "1\nPeru\n", "output": "Case #1: Peru is ruled by Alice.\n", "testtype": "stdin"}]
    path = changed(tmp_path, STDIN, private_test_cases=packed(json.dumps(public + more + more)))
    assert [test.input for test in tasks_of("lcb_v5:partial", path)[STDIN].hidden] == ["1\nPeru\n"]  # type: ignore[union-attr]


def test_where_all_private_tests_are_public_one_is_no_longer_shown(tmp_path: Path) -> None:
    public = rows_of(LCB)[0]["public_test_cases"]
    task = tasks_of("lcb_v5:partial", changed(tmp_path, STDIN, private_test_cases=packed(public)))[STDIN]
    assert (len(task.problem.tests), len(task.hidden)) == (2, 1)


def test_a_row_without_private_tests_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"standin_centauri_prime\): no hidden tests"):
        tasks_of("lcb_v5:partial", changed(tmp_path, STDIN, private_test_cases=packed("[]")))


def test_the_prompt_is_the_published_one_and_shows_the_starter_code_once() -> None:
    tasks = tasks_of("lcb_v5:partial", LCB)
    for name, format_ in ((STDIN, "Read the inputs from stdin"), (FUNCTION, "use the following starter code")):
        built = build_messages(tasks[name].problem, [], max_tokens=10_000, count=lambda content: len(str(content)) // 4)
        text = built.messages[-1]["content"]
        assert text.startswith("### Question:\n")
        assert format_ in text
        assert text.count("class Solution") == (name == FUNCTION)
        assert "from string import" not in text


def test_programs_have_the_imports_that_the_published_grader_gives_them(sandbox: LocalSandbox) -> None:
    tasks = tasks_of("lcb_v5:partial", LCB)
    program = (
        "class Solution:\n    def remove_Occ(self, s: str, ch: Optional[str]) -> str:\n"
        "        q = deque(s)\n        return reduce(add, q, '').replace(ch, '', 1)[::-1].replace(ch, '', 1)[::-1]"
    )
    assert grade_hidden(tasks[FUNCTION], program, sandbox).correct
    program = solutions()[STDIN].replace("int(input())", "int(sys.stdin.readline()) + floor(0.5)")
    assert grade_hidden(tasks[STDIN], program, sandbox).correct


def test_outputs_are_compared_by_lines_and_decimals(tmp_path: Path, sandbox: LocalSandbox) -> None:
    tests = json.dumps([{"input": "", "output": "1.50 2\n3\n", "testtype": "stdin"}])
    path = changed(tmp_path, STDIN, private_test_cases=packed(tests))
    task = tasks_of("lcb_v5:partial", path)[STDIN]
    for shown, right in (("1.5 2.0\\n3", True), ("1.5 2 3", False), ("1.5 2\\n\\n3", False), ("1.500001 2\\n3", False)):
        assert grade_hidden(task, f"print('{shown}')", sandbox).correct is right, shown


@pytest.mark.parametrize("digits", [4_301, 9_000])
def test_whole_numbers_beyond_pythons_limit_are_read_and_compared(
    tmp_path: Path, sandbox: LocalSandbox, digits: int
) -> None:
    one, nines = "1" + "0" * (digits - 1), "9" * (digits - 1)
    tests = json.dumps([{"input": f"{one}\n-1", "output": nines, "testtype": "functional"}])
    path = changed(tmp_path, FUNCTION, private_test_cases=packed(tests), public_test_cases=tests.replace("-1", "-2"))
    task = tasks_of("lcb_v5:partial", path)[FUNCTION]
    add = "class Solution:\n    def remove_Occ(self, a, b): return a + {}"
    assert len(build_messages(task.problem, [], max_tokens=10_000, count=len).messages) == 2
    assert grade_hidden(task, add.format("b"), sandbox).correct
    assert not visible(task, add.format("b"), sandbox).correct
    assert not grade_hidden(task, add.format("2 * b"), sandbox).correct


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"metadata": "{"}, "metadata: not JSON"),
        ({"metadata": json.dumps({"func_name": "a b"})}, "func_name must be a name, got 'a b'"),
        ({"public_test_cases": "{}"}, "test cases must be a list"),
        ({"public_test_cases": json.dumps([{"input": 1, "output": "", "testtype": "stdin"}])}, "input and output"),
        ({"public_test_cases": json.dumps([{"input": "", "output": "", "testtype": "files"}])}, "testtype must be"),
        ({"question_content": None}, "question_content must be text, got None"),
        ({"question_content": " "}, None),
    ],
)
def test_a_row_that_cannot_be_read_is_an_error_with_its_line(
    tmp_path: Path, fields: dict[str, Any], message: str | None
) -> None:
    path = changed(tmp_path, FUNCTION, **fields)
    if message is None:
        assert tasks_of("lcb_v5:partial", path)
        return
    with pytest.raises(DatasetError, match=f"test5.jsonl, line 1.*{message}"):
        tasks_of("lcb_v5:partial", path)
