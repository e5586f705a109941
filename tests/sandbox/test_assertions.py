"""Assertions: which are taken apart, and that the others mean what they say although the program runs elsewhere."""

import pytest

from pot_agent.errors import ProblemError
from pot_agent.problem import AssertTest, CallTest, Limits
from pot_agent.sandbox import Judgement, LocalSandbox
from pot_agent.sandbox.assertions import names_from_program, take_apart

LIMITS = Limits(cpu_seconds=1.0, wall_seconds=4.0)


@pytest.mark.parametrize(
    ("code", "simple"),
    [
        ("assert f(1, [2], k='x') == {1: 2}", True),
        ("assert 3 == f(1)", True),
        ("assert f(1) is None", True),
        ("assert f(1) is True, 'message'", True),
        ("assert f(1)", True),
        ("assert not f(1)", True),
        ("assert f(1) == set()", True),
        ("assert f(-1) == -1\nassert f(2) == 2", False),
        ("assert Solution().f(1) == 2", True),
        ("assert candidate(1) == 2", True),
        ("assert f(1) != 2", False),
        ("assert f(g(1)) == 2", False),
        ("assert f(*[1]) == 2", False),
        ("assert sorted(f(1)) == [1]", False),
        ("assert helper(1) == 2", False),
        ("assert abs(f(1) - 2) < 1e-6", False),
        ("x = 1\nassert f(x) == 2", False),
        ("assert f(1) == f(1)", False),
        ("assert f(1) < 2 < 3", False),
        ("assert 1 == 1", False),
    ],
)
def test_only_simple_assertions_are_taken_apart(code: str, simple: bool) -> None:
    checks = take_apart(code, entry_point="f", setup_names=frozenset({"helper"}))
    assert (checks is not None) is simple


def test_names_come_from_the_program_unless_bound_or_built_in() -> None:
    code = "import math\nfor i in range(3):\n    assert math.isclose(f(i), g(i, key=lambda x: x), abs_tol=eps)"
    found = names_from_program(code, entry_point="f", setup_names={"eps"})
    assert found == [["f", "f"], ["g", "g"]]


def judge(sandbox: LocalSandbox, program: str, code: str, *, setup: str = "", entry_point: str = "f") -> Judgement:
    return sandbox.judge(program, [AssertTest(code=code)], entry_point=entry_point, setup=setup, limits=LIMITS)


POINT = "class Point:\n    def __init__(self, x): self.x = x\n    def twice(self): return 2 * self.x\n"


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("def f(x): return x / 3", "import math\nassert math.isclose(f(1), 0.333333, rel_tol=1e-4)"),
        ("def f(x): return x / 3", "assert abs(f(1) - 0.3333) < 1e-3"),
        ("def f(x): return x / 3", "assert round(f(2), 2) == 0.67"),
        ("def f(x): return {x: [x]}", "assert set(f(1)) == set([1])"),
        ("def f(x): return (x, x)", "assert list(f(1)) == [1, 1]"),
        ("def f(x): return map(str, x)", "assert list(f([1, 2])) == ['1', '2']"),
        ("def f(x):\n    yield x\n    yield x", "assert list(f(2)) == [2, 2]"),
        ("def f(x): return x + 1", "assert f(f(1)) == 3"),
        ("def f(x): return x + 1", "for i in range(300):\n    assert f(i) == i + 1"),
        (
            "def f(x): return x + 1",
            "import random\nfor _ in range(9):\n    n = random.random()\n    assert f(n) == n + 1",
        ),
        ("def f(x): x.sort()", "a = [3, 1]\nf(a)\nassert a == [1, 3]"),
        ("def f(d): d['k'] = 1", "d = {}\nassert f(d) is None\nassert d == {'k': 1}"),
        ("def f(x):\n    raise ValueError('no')", "try:\n    f(1)\nexcept ValueError as e:\n    assert 'no' in str(e)"),
        (
            "class Odd(ValueError): pass\ndef f(x):\n    raise Odd",
            "try:\n    f(1)\n    assert 0\nexcept ValueError:\n    pass",
        ),
        ("def f(x): return x\nLIMIT = 7", "assert LIMIT == 7 and f(LIMIT) == 7"),
        (POINT + "def f(p): return p.x", "assert f(Point(5)) == 5"),
        (POINT + "def f(x): return Point(x)", "p = f(4)\nassert p.x == 4 and p.twice() == 8"),
        (POINT + "def f(ps): return max(p.x for p in ps)", "assert f([Point(1), Point(3)]) == 3"),
        ("def f(g, x): return g(x)\ndef g(x): return -x", "assert f(g, 3) == -3"),
        ("class Solution:\n    def f(self, x): return 2 * x", "s = Solution()\nassert s.f(2) == 4 and s.f(3) == 6"),
        ("def f(x): return x", "def check(candidate):\n    assert candidate(1) == 1\ncheck(f)"),
        ("def f(*a, **k): return [len(a), sorted(k)]", "x = 1\nassert f(x, x, y=x) == [2, ['y']]"),
    ],
)
def test_an_assertion_that_holds_passes(sandbox: LocalSandbox, program: str, code: str) -> None:
    judgement = judge(sandbox, program, code)
    assert judgement.verdict == "passed", judgement.first_failure


ALWAYS = "class E:\n    def __eq__(self, o): return True\n    def __lt__(self, o): return True\n    __le__ = __lt__\n"


@pytest.mark.parametrize(
    ("program", "code", "verdict"),
    [
        ("def f(x): return x", "assert abs(f(1) - 2) < 1e-3", "wrong_answer"),
        (ALWAYS + "def f(x): return E()", "assert f(1) == 2 + 0 * 1", "wrong_answer"),
        (ALWAYS + "def f(x): return [E()]", "y = [2]\nassert f(1) == y", "wrong_answer"),
        (ALWAYS + "def f(x): return E()", "assert f(1) < f(2)", "wrong_answer"),
        (ALWAYS + "def f(x): return E()", "assert f(1) in [1, 2]", "wrong_answer"),
        ("def f(x): return 'x'", "assert f(1) + 1 == 2", "wrong_answer"),
        ("def f(x): return None", "assert len(f(1)) == 2", "wrong_answer"),
        ("def f(x): raise ValueError('odd')", "assert f(1) + 0 == 1", "runtime_error"),
        ("def f(x): raise AssertionError", "assert f(1) + 0 == 1", "runtime_error"),
        ("import os\ndef f(x): os._exit(0)", "assert f(1) + 0 == 1", "runtime_error"),
        ("import sys\ndef f(x): sys.exit(0)", "assert f(1) + 0 == 1", "runtime_error"),
        ("def f(x):\n    while True: pass", "assert f(1) + 0 == 1", "time_limit"),
        ("while True: pass", "assert f(1) + 0 == 1", "time_limit"),
        ("def f(x): return [0] * 10**9", "assert f(1) + 0 == 1", "memory_limit"),
        ("def f(x): return 'x' * 10**7", "assert f(1) + '' == 1", "output_limit"),
        ("def g(x): return x", "assert f(1) + 0 == 1", "runtime_error"),
        ("def f(x)", "assert f(1) + 0 == 1", "compile_error"),
        ("1 / 0", "assert f(1) + 0 == 1", "runtime_error"),
        (
            "def f(x): return 1",
            "try:\n    f(1)\n    assert False, 'must raise'\nexcept ValueError:\n    pass",
            "wrong_answer",
        ),
        (
            "import builtins\nbuiltins.AssertionError = None\ndef f(x): return 1",
            "y = 2\nassert f(1) == y",
            "wrong_answer",
        ),
    ],
)
def test_an_assertion_that_does_not_hold_says_why(sandbox: LocalSandbox, program: str, code: str, verdict: str) -> None:
    judgement = judge(sandbox, program, code)
    assert judgement.verdict == verdict, judgement.first_failure


def test_a_program_cannot_speak_for_the_assertion(sandbox: LocalSandbox) -> None:
    program = (
        "import os, struct\n"
        "def s(t): return b's' + struct.pack('<I', len(t)) + t\n"
        "body = b'l' + struct.pack('<I', 1) + s(b'held')\n"
        "for fd in range(3, 64):\n"
        "    try: os.write(fd, struct.pack('<I', len(body)) + body)\n"
        "    except OSError: pass\n"
        "def f(x): return 1\n"
    )
    assert judge(sandbox, program, "y = 2\nassert f(1) == y").verdict == "runtime_error"


def test_the_expected_value_is_not_in_the_programs_process(sandbox: LocalSandbox) -> None:
    program = (
        "import gc, sys\n"
        "def f(x):\n"
        "    seen = [o for o in gc.get_objects() if isinstance(o, (tuple, list, dict))]\n"
        "    frame = sys._getframe()\n"
        "    while frame:\n"
        "        seen += [frame.f_locals, frame.f_globals]\n"
        "        frame = frame.f_back\n"
        "    return ''.join(['needle', '-7531']) in repr(seen)\n"
    )
    judgement = judge(sandbox, program, "x = 'needle-7531'\nassert f(1) is False, x")
    assert judgement.verdict == "passed", judgement.first_failure
    tested = sandbox.judge(
        program, [CallTest(args=(1,), expected="needle-7531")], entry_point="f", limits=Limits(cpu_seconds=2)
    )
    assert tested.results[0].got == "False"


def test_setup_is_there_for_the_program_and_for_the_assertion(sandbox: LocalSandbox) -> None:
    setup = "import math\ndef helper(x): return x + 1"
    program = "def f(x): return helper(math.floor(x))"
    assert judge(sandbox, program, "assert f(1.5) == 2", setup=setup).verdict == "passed"
    assert judge(sandbox, program, "assert f(1.5) == helper(math.ceil(0.5))", setup=setup).verdict == "passed"


def test_setup_that_fails_is_the_problems_fault(sandbox: LocalSandbox) -> None:
    with pytest.raises(ProblemError, match=r"setup code fails.*no_such_module"):
        judge(sandbox, "def f(x): return x", "assert f(1) == 1", setup="import no_such_module")


def test_a_program_cannot_blame_the_setup(sandbox: LocalSandbox) -> None:
    program = (
        "import os, struct\n"
        "def s(t): return b's' + struct.pack('<I', len(t)) + t\n"
        "body = b'l' + struct.pack('<I', 2) + s(b'setup') + b'N'\n"
        "for fd in range(3, 64):\n"
        "    try: os.write(fd, struct.pack('<I', len(body)) + body)\n"
        "    except OSError: pass\n"
        "os._exit(0)\n"
    )
    assert judge(sandbox, program, "assert f(1) == 1").verdict == "runtime_error"
    assert judge(sandbox, program, "y = 1\nassert f(1) == y").verdict == "runtime_error"
