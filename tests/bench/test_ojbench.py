"""OJBench's folders: cases, the judge's rules, checkers in C++ that run in the sandbox alone, and what is skipped."""

import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from pot_agent.bench import datasets
from pot_agent.bench.datasets.cpp_checker import python_checker
from pot_agent.bench.grading import grade_hidden, visible
from pot_agent.bench.task import Task
from pot_agent.errors import DatasetError, DatasetNotFoundError, ProblemError
from pot_agent.problem import StdinTest
from pot_agent.sandbox import LocalSandbox
from tests.bench.rows import has_compiler, write

PROMPT = """# Problem: Two Parts

Split n into two integers that add up to it.

## Sample Input 1
```
5
```

## Sample Output 1
```
2 3
```
"""
# In the way of the published ones: `main` and `exit` are macros around a validator that accepts by status 42.
CHECKER = """
#include <cstdlib>
static int code_of(int code) { return code == 42 ? 0 : 1; }
namespace std { [[noreturn]] void leave(int code) { exit(code_of(code)); } }
using std::leave;
#define exit leave
#define main inner_main
#include "helper.h"
int main(int argc, char **argv) {
    std::ifstream input(argv[1]), answer(argv[2]);
    long n = read(input), a = read(std::cin), b = read(std::cin);
    return a + b == n ? 42 : 43;
}
#undef main
#include <cstdio>
int main(int argc, char **argv) {
    if (!freopen(argv[2], "r", stdin)) return 3;
    char *inner[] = {argv[0], argv[1], argv[3], nullptr};
    return code_of(inner_main(3, inner));
}
"""
HELPER = """
#include <fstream>
#include <iostream>
inline long read(std::istream &from) {
    long value;
    if (!(from >> value)) { std::cerr << "no number" << std::endl; exit(43); }
    return value;
}
"""
BRIDGED = {"name": "bridged", "args": {"files": ["out/helper.h", "out/check.cpp"], "lang": "CPP17", "type": "default"}}
RIGHT, OTHER, WRONG = "n = int(input()); print(2, n - 2)", "n = int(input()); print(n, 0)", "input(); print(1, 1)"


def make(root: Path, name: str = "two_2024_A", cases: Any = None, **init: Any) -> Path:
    """A problem's folder and its row; gives the root of the data."""
    folder = root / "ICPC" / name
    (folder / "out").mkdir(parents=True)
    (folder / "out" / "check.cpp").write_text(CHECKER)
    (folder / "out" / "helper.h").write_text(HELPER)
    cases = {"1": ("5\n", "2 3\n"), "2": ("9\n", "4 5\n"), "3": ("11\n", "2 9\n")} if cases is None else cases
    with zipfile.ZipFile(folder / "data.zip", "w") as archive:
        for case, (given, wanted) in cases.items():
            archive.writestr(f"{case}.in", given)
            archive.writestr(f"{case}.ans", wanted)
    listed = [{"in": f"{case}.in", "out": f"{case}.ans", "points": 1} for case in cases]
    (folder / "init.yml").write_text(yaml.safe_dump({"archive": "data.zip", "test_cases": listed, **init}))
    (root / "prompts").mkdir(exist_ok=True)
    rows = root / "prompts" / "full.jsonl"
    row = {"id": name, "prompt": PROMPT, "dataset": "icpc", "difficulty": "easy"}
    before = rows.read_text() if rows.exists() else ""
    write(rows, {**row, "language": "python"}, {**row, "language": "cpp"}, {**row, "id": 1, "dataset": "NOI"})
    rows.write_text(before + rows.read_text())
    return root


def only(root: Path) -> Task:
    (task,) = datasets.load("ojbench:partial", data=root).tasks
    return task


def test_samples_are_visible_and_cases_that_repeat_one_are_dropped(tmp_path: Path, sandbox: LocalSandbox) -> None:
    task = only(make(tmp_path))
    assert [test.input for test in task.problem.tests if isinstance(test, StdinTest)] == ["5\n"]
    assert [test.input for test in task.hidden if isinstance(test, StdinTest)] == ["9\n", "11\n"]
    assert task.tags == ("easy",)
    assert grade_hidden(task, "n = int(input()); print(n // 2, n - n // 2) if n < 10 else print(2, 9)", sandbox).correct


@pytest.mark.skipif(not has_compiler(), reason="there is no g++ here")
def test_a_checker_in_cpp_decides_in_the_sandbox(tmp_path: Path, sandbox: LocalSandbox) -> None:
    task = only(make(tmp_path, checker=BRIDGED))
    if not sandbox.tier.startswith(("T2", "T1n")):
        with pytest.raises(ProblemError, match="scratch folder"):
            grade_hidden(task, RIGHT, sandbox)
        pytest.skip("no scratch folder here; that is said, and is no wrong answer")
    for grade in (grade_hidden, visible):
        assert grade(task, RIGHT, sandbox).correct
        assert grade(task, OTHER, sandbox).correct, "several answers are right"
        assert grade(task, WRONG, sandbox).verdict == "wrong_answer"
        assert grade(task, "print()", sandbox).verdict == "wrong_answer", "the checker ends by exit"


@pytest.mark.skipif(not has_compiler(), reason="there is no g++ here")
def test_a_checker_in_cpp_reaches_nothing_of_the_machine(tmp_path: Path, sandbox: LocalSandbox) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (tmp_path / "check.cpp").write_text(
        "#include <cstdio>\n#include <cstdlib>\n#include <unistd.h>\nint main() {\n"
        f'  if (std::fopen("{secret}", "r") || std::fopen("/etc/passwd", "r") || fork() >= 0) std::exit(0);\n'
        "  return 1;\n}\n"
    )
    test = StdinTest(input="", output="", checker=python_checker([tmp_path / "check.cpp"]))
    if not sandbox.tier.startswith(("T2", "T1n")):
        pytest.skip("no scratch folder here")
    result = sandbox.judge("print(1)", [test]).results[0]
    assert (result.verdict, result.error) == ("wrong_answer", "")


@pytest.mark.skipif(not has_compiler(), reason="there is no g++ here")
def test_a_checker_that_does_not_compile_is_an_error_with_the_compilers_words(tmp_path: Path) -> None:
    root = make(tmp_path, checker=BRIDGED)
    (root / "ICPC/two_2024_A/out/check.cpp").write_text("int main() { return no_such_name; }")
    with pytest.raises(DatasetError, match=r"does not compile: check.cpp(?s:.*)no_such_name"):
        only(root)


def test_an_interactive_problem_is_named_and_skipped(tmp_path: Path) -> None:
    root = make(make(tmp_path), "talk_2024_B", interactive={"files": ["out/check.cpp"]})
    dataset = datasets.load("ojbench:partial", data=root)
    assert [task.id for task in dataset.tasks] == ["two_2024_A"]
    assert dataset.skipped == (("talk_2024_B", "talk_2024_B is interactive"),)


@pytest.mark.parametrize(
    ("checker", "shown", "passed"),
    [
        ({"name": "floats", "args": {"precision": 3}}, "2.0004", True),
        ({"name": "floats", "args": {"precision": 3}}, "2.01", False),
        ({"name": "floatsabs", "args": {"precision": 1}}, "2.09", True),
        ({"name": "floatsrel", "args": {"precision": 1}}, "2.19", True),
        ({"name": "floatsabs", "args": {"precision": 1}}, "2.19", False),
        ("standard", "2", True),
        ("identical", " 2", False),
    ],
)
def test_the_judges_rules_compare(
    tmp_path: Path, sandbox: LocalSandbox, checker: Any, shown: str, passed: bool
) -> None:
    task = only(make(tmp_path, cases={"1": ("1\n", "2\n")}, checker=checker))
    assert grade_hidden(task, f"print('{shown}')", sandbox).correct is passed


@pytest.mark.parametrize(
    ("init", "message"),
    [
        ({"checker": "guess"}, "checker must be one of standard, .*'guess'"),
        ({"checker": {"name": "floats", "args": {"precision": "6"}}}, "precision must be 0 to 18, got '6'"),
        ({"checker": {"name": "bridged", "args": {"files": ["../../../secret.cpp"]}}}, "not a file of its folder"),
        ({"checker": {"name": "bridged", "args": {"files": ["out/helper.h"]}}}, "needs a .cpp file, got helper.h"),
        ({"archive": "../../other.zip"}, "not a file of its folder"),
        ({"archive": "none.zip"}, "hidden tests of two_2024_A are not there"),
        ({"test_cases": [{"in": "1.in"}]}, "needs `in` and `out`"),
        ({"test_cases": [{"in": "8.in", "out": "8.ans"}]}, "8.in cannot be read"),
        ({"test_cases": []}, "no hidden tests"),
    ],
)
def test_a_folder_that_cannot_be_judged_is_an_error_with_what_is_wrong(
    tmp_path: Path, init: dict[str, Any], message: str
) -> None:
    with pytest.raises(DatasetError, match=message):
        only(make(tmp_path, **init))


def test_batched_cases_count(tmp_path: Path) -> None:
    batch = [{"points": 10, "batched": [{"in": f"{n}.in", "out": f"{n}.ans"} for n in (2, 3)]}]
    assert len(only(make(tmp_path, test_cases=batch)).hidden) == 2


def test_a_pointer_in_place_of_an_archive_is_an_error_that_says_so(tmp_path: Path) -> None:
    root = make(tmp_path)
    (root / "ICPC/two_2024_A/data.zip").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(DatasetError, match="git-lfs"):
        only(root)


def test_hidden_cases_are_read_again_wherever_the_task_goes(tmp_path: Path) -> None:
    task = only(make(tmp_path))
    sent = pickle.loads(pickle.dumps(task))
    assert tuple(sent.hidden) == tuple(task.hidden)
    assert "11" not in repr(task)
    (tmp_path / "ICPC/two_2024_A/init.yml").write_text("archive: data.zip\ntest_cases: [{in: 2.in, out: 2.ans}]\n")
    with pytest.raises(DatasetError, match="changed since it was"):
        tuple(task.hidden)


def test_a_count_that_is_not_the_published_one_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"has 73 problems, and .* has 1; get it again, or ask .* ojbench:partial"):
        datasets.load("ojbench", data=make(tmp_path))


def test_a_folder_without_the_statements_is_an_error_that_names_the_ways(tmp_path: Path) -> None:
    with pytest.raises(
        DatasetNotFoundError, match=r"prompts/full.jsonl.*the hub \(He-Ren/OJBench_testdata.*--data DIR"
    ):
        datasets.load("ojbench", data=tmp_path)
