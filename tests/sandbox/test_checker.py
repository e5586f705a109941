"""A test's own checker decides, apart from the program, and only True is a pass."""

import pytest

from pot_agent.errors import ProblemError
from pot_agent.problem import Limits, StdinTest, parse_tests, test_to_dict
from pot_agent.sandbox import LocalSandbox

TWO_PARTS = """
def check(input, expected, output):
    a, b = map(int, output.split())
    return a + b == int(input)
"""
LIMITS = Limits(cpu_seconds=0.5, wall_seconds=1.5)


def checked_by(checker: str, *, expected: str = "") -> list[StdinTest]:
    return [StdinTest(input=f"{n}\n", output=expected, checker=checker) for n in (3, 5)]


@pytest.mark.parametrize("answer", ["n = int(input()); print(1, n - 1)", "n = int(input()); print(n); print(0)"])
def test_several_answers_are_right(sandbox: LocalSandbox, answer: str) -> None:
    assert sandbox.judge(answer, checked_by(TWO_PARTS)).verdict == "passed"


def test_a_wrong_answer_is_wrong_and_shown(sandbox: LocalSandbox) -> None:
    result = sandbox.judge("print(1, 1)", checked_by(TWO_PARTS)).results[0]
    assert (result.verdict, result.got) == ("wrong_answer", "1 1\n")


@pytest.mark.parametrize(
    ("program", "reason"),
    [("print('no number')", "ValueError"), ("", "ValueError"), ("print('9' * 5000, 1)", "")],
    ids=["not a number", "nothing", "long"],
)
def test_an_output_that_the_checker_cannot_read_is_wrong(sandbox: LocalSandbox, program: str, reason: str) -> None:
    result = sandbox.judge(program, checked_by(TWO_PARTS)).results[0]
    assert result.verdict == "wrong_answer"
    assert reason in result.error


def test_an_output_that_a_checker_never_ends_on_is_wrong(sandbox: LocalSandbox) -> None:
    checker = "def check(input, expected, output):\n    while 'loop' in output: pass\n    return True"
    judgement = sandbox.judge("print('loop')", checked_by(checker), limits=LIMITS)
    assert [result.verdict for result in judgement.results] == ["wrong_answer"] * 2
    assert sandbox.judge("print('end')", checked_by(checker), limits=LIMITS).verdict == "passed"


def test_the_checker_has_the_expected_output_and_the_program_has_not(sandbox: LocalSandbox) -> None:
    checker = "def check(input, expected, output): return output.strip() == expected"
    program = (
        "import gc, sys\n"
        "texts = [o for o in gc.get_objects() if isinstance(o, (str, list, dict))]\n"
        "print('needle' if any('needl' 'e' in str(o)[:10**6] for o in texts) else 'nothing')"
    )
    judgement = sandbox.judge(program.replace("'needle'", "'nee' + 'dle'"), checked_by(checker, expected="needle"))
    assert judgement.verdict == "wrong_answer"
    assert judgement.results[0].got == "nothing\n"


def test_a_program_cannot_become_the_checker(sandbox: LocalSandbox) -> None:
    program = (
        "import builtins, sys, types\n"
        "def check(input, expected, output): return True\n"
        "builtins.check = check\n"
        "sys.modules['program'] = types.ModuleType('program'); sys.modules['program'].check = check\n"
        "print(0, 0)"
    )
    assert sandbox.judge(program, checked_by(TWO_PARTS)).verdict == "wrong_answer"


@pytest.mark.parametrize("value", ["1", "None", "'yes'", "[True]"])
def test_a_checker_that_returns_no_bool_is_the_problems_fault(sandbox: LocalSandbox, value: str) -> None:
    with pytest.raises(ProblemError, match="True or False"):
        sandbox.judge("print(1)", checked_by(f"def check(input, expected, output): return {value}"))


def test_a_checker_that_does_not_load_is_the_problems_fault(sandbox: LocalSandbox) -> None:
    with pytest.raises(ProblemError, match="does not load"):
        sandbox.judge("print(1)", checked_by("import no_such_module\ndef check(input, expected, output): return True"))


def test_a_checker_runs_confined(sandbox: LocalSandbox) -> None:
    checker = "def check(input, expected, output):\n    open('/etc/passwd')\n    return True"
    assert sandbox.judge("print(1)", checked_by(checker)).verdict == "wrong_answer"


def test_a_checker_is_read_and_written_as_json() -> None:
    given = {"type": "stdin", "input": "3", "checker": TWO_PARTS}
    (test,) = parse_tests([given])
    assert isinstance(test, StdinTest)
    assert (test.checker, test.output) == (TWO_PARTS, "")
    assert parse_tests([test_to_dict(test)]) == (test,)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"checker": "def check(:"}, "not Python"),
        ({"checker": "def verify(a, b, c): return True"}, "no def check"),
        ({"checker": 3}, "Python source"),
        ({"checker": TWO_PARTS, "compare": "exact"}, "not both"),
        ({"compare": "sorted"}, "unordered"),
    ],
)
def test_a_checker_that_cannot_be_is_an_error_at_the_door(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        parse_tests([{"type": "stdin", "input": "", "output": "", **fields}])
