"""Files with tests of their own: read and edited, never run; and the tool that runs their tests in a real sandbox."""

import json
from typing import Any

import pytest

from pot_agent import ProblemError
from pot_agent.integrations import create_run_tests_tool
from pot_agent.integrations.source_file import SourceFile

FILE = '''"""Words."""
import math

LIMIT = 3


def helper(text):
    return text.strip()


def shorten(text):
    """The first LIMIT characters."""
    raise NotImplementedError


def test_shorten():
    """It cuts."""
    assert shorten("abcdef") == "abc"
    assert shorten(" a ") == "a"


def test_with_a_loop():
    for text in ("", "ab"):
        assert shorten(text) == text


def test_helper():
    assert helper(" x ") == "x"


def test_of_a_fixture(tmp_path):
    assert tmp_path


assert shorten("abcdef") == "abcdef"[:LIMIT]
assert math.floor(2.5) == 2

if __name__ == "__main__":
    print(shorten("abcdef"))
'''
GOOD = "def shorten(text):\n    return helper(text)[:LIMIT]\n"


def test_each_test_is_read_and_those_that_cannot_be_run_are_named() -> None:
    file = SourceFile.parse(FILE)
    assert list(file.tests) == ["test_shorten", "test_with_a_loop", "test_helper", "line 35"]
    assert file.skipped == ["test_of_a_fixture", "line 36"]
    assert file.setup == "import math\nLIMIT = 3\n"


def test_tests_of_nothing_but_assertions_are_taken_apart_and_those_of_other_functions_left_out() -> None:
    assertions = SourceFile.parse(FILE).assertions("shorten")
    assert assertions[:2] == ["assert shorten('abcdef') == 'abc'", "assert shorten(' a ') == 'a'"]
    assert "for text in" in assertions[2]
    assert len(assertions) == 4
    assert "assert helper(' x ') == 'x'" in SourceFile.parse(FILE).assertions("helper")


def test_a_test_that_comes_to_the_function_by_way_of_another_counts() -> None:
    text = (
        "def evens(ns):\n    return [n for n in ns if even(n)]\n\n\nassert evens([2]) == [2]\nassert evens([]) == []\n"
    )
    assert len(SourceFile.parse(text).assertions("even")) == 2


@pytest.mark.parametrize(
    ("text", "target"),
    [
        (FILE, "shorten"),
        ("def test_a():\n    assert twice(2) == 4\n", "twice"),
        ("def twice(x):\n    return x\n\n\ndef test_a():\n    assert twice(2) == 4\n", "twice"),
        ("def twice(x):\n    return once(x) * 2\n\n\nassert twice(2) == 4\n", "once"),
    ],
)
def test_the_function_to_write_is_the_missing_one_then_the_stub_then_the_only_one_tested(
    text: str, target: str
) -> None:
    assert SourceFile.parse(text).function_to_write(SourceFile.parse(text).tests) == target


def test_more_than_one_candidate_is_an_error_that_asks_for_the_function() -> None:
    text = "def a(): return 1\ndef b(): return 2\ndef test_both():\n    assert a() == b()\n"
    with pytest.raises(ProblemError, match=r"Give `function`; failing tests call a, b"):
        SourceFile.parse(text).function_to_write(["test_both"])


@pytest.mark.parametrize("text", ["def f(: pass", "x = 1\n", "def test_a(fixture):\n    assert fixture\n", 3])
def test_a_file_that_cannot_be_worked_on_is_an_error(text: Any) -> None:
    with pytest.raises(ProblemError):
        SourceFile.parse(text)


def test_a_function_is_replaced_and_every_other_line_stays_as_it_was() -> None:
    written = SourceFile.parse(FILE).with_function("shorten", GOOD)
    before, after = FILE.splitlines(), written.splitlines()
    at = before.index("def shorten(text):")
    assert after[:at] == before[:at]
    assert after[at : at + 2] == GOOD.splitlines()
    assert after[at + 2 :] == before[at + 3 :]


def test_a_missing_function_is_put_before_the_tests() -> None:
    written = SourceFile.parse("import math\n\n\ndef test_a():\n    assert twice(2) == 4\n").with_function(
        "twice", "def twice(x):\n    return 2 * x\n"
    )
    assert written.index("def twice") < written.index("def test_a")
    assert SourceFile.parse(written).tests


def test_what_a_program_brings_along_is_kept_where_the_function_needs_it_and_the_file_lacks_it() -> None:
    program = (
        "import re\nimport json\nimport math\nSIZE = 3\ndef helper(text):\n    return 'mine'\n"
        "def cut(text):\n    return re.sub('x', '', text)[:SIZE]\ndef unused():\n    return 1\n"
        "def shorten(text):\n    return cut(helper(text))\n"
        "def test_shorten():\n    pass\nprint(shorten('x'))\nassert unused()\n"
    )
    written = SourceFile.parse(FILE).with_function("shorten", program)
    assert "import re\nSIZE = 3\n\n\ndef cut(text):" in written
    assert "\n\n\ndef shorten(text):\n    return cut(helper(text))\n\n\ndef test_shorten" in written
    assert written.count("def helper") == written.count("import math") == written.count("def test_shorten") == 1
    for left in ("mine", "unused", "json", "print(shorten('x'))"):
        assert left not in written


@pytest.mark.parametrize("program", ["", "def other():\n    pass\n", "def shorten(: no", "class shorten: pass"])
def test_a_program_without_the_function_is_an_error(program: str) -> None:
    with pytest.raises(ProblemError, match="shorten"):
        SourceFile.parse(FILE).with_function("shorten", program)


@pytest.mark.parametrize(
    ("call", "head"),
    [("f(1, 2)", "f(a, b)"), ("f(1, key=2)", "f(a, key)"), ("f(*[1])", "f(*args, **kwargs)"), ("f()", "f()")],
)
def test_a_missing_function_gets_a_head_that_fits_its_calls(call: str, head: str) -> None:
    assert SourceFile.parse(f"assert {call} == 3\n").stub_of("f") == f"def {head}:\n    pass"


def test_a_stub_keeps_the_head_and_the_docstring() -> None:
    text = 'def f(a: int, *, b=2) -> int:\n    """Doc."""\n    return wrong\n\n\nassert f(1) == 3\n'
    stub = SourceFile.parse(text).stub_of("f")
    assert stub == 'def f(a: int, *, b=2) -> int:\n    """Doc."""\n    pass'


def test_run_tests_says_what_passes_and_what_the_others_found(sandbox: Any) -> None:
    tool = create_run_tests_tool(sandbox)
    found = json.loads(tool.invoke({"source": FILE}))
    assert (found["passed"], found["total"], found["not_run"]) == (1, 4, ["test_of_a_fixture", "line 36"])
    assert sorted(found["failures"]) == ["line 35", "test_shorten", "test_with_a_loop"]
    assert "NotImplementedError" in found["failures"]["test_shorten"]["error"]
    done = json.loads(tool.invoke({"source": SourceFile.parse(FILE).with_function("shorten", GOOD)}))
    assert (done["verdict"], done["passed"], done["failures"]) == ("passed", 4, {})


def test_a_file_cannot_vouch_for_itself(sandbox: Any) -> None:
    lies = (
        "import builtins\nclass Yes(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\n"
        "def answer():\n    return Yes(1)\n\n\ndef test_answer():\n    assert answer() == 42\n"
    )
    assert json.loads(create_run_tests_tool(sandbox).invoke({"source": lies}))["passed"] == 0


def test_run_tests_tells_the_agent_what_is_wrong_with_a_file(sandbox: Any) -> None:
    assert "not Python" in create_run_tests_tool(sandbox).invoke({"source": "def ("})
