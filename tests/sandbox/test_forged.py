"""What a program leaves for its judge, made to break the judge: it never does, and the program gains nothing."""

import math
import time
from fractions import Fraction

import pytest

from pot_agent.errors import ProblemError
from pot_agent.problem import AssertTest, CallTest, Limits, StdinTest, parse_tests
from pot_agent.sandbox import LocalSandbox
from pot_agent.sandbox import judge as judge_module
from pot_agent.sandbox.codec import MAX_FRACTION_CHARACTERS, CodecError, decode
from pot_agent.sandbox.encoding import TooLargeError, encode

LIMITS = Limits(cpu_seconds=2.0, wall_seconds=6.0)
FORGER = """
import os, struct
def field(v):
    if isinstance(v, list): return b"l" + struct.pack("<I", len(v)) + b"".join(map(field, v))
    if isinstance(v, dict):
        return b"d" + struct.pack("<I", len(v)) + b"".join(field(k) + field(x) for k, x in v.items())
    if isinstance(v, str): return b"s" + struct.pack("<I", len(v)) + v.encode()
    if isinstance(v, tuple): return b"D" + struct.pack("<I", len(v[0])) + v[0].encode()
    if isinstance(v, bytes): return b"b" + struct.pack("<I", len(v)) + v
    if isinstance(v, float): return b"f" + struct.pack("<d", v)
    if v is None: return b"N"
    n = v.bit_length() // 8 + 1
    return b"i" + struct.pack("<I", n) + v.to_bytes(n, "little", signed=True)
def frame(*parts):
    body = field(list(parts))
    return struct.pack("<I", len(body)) + body
def leave(*frames):
    for descriptor in range(3, 64):
        try: os.write(descriptor, b"".join(frames))
        except OSError: pass
    os._exit(0)
"""
CALLS = [CallTest(args=(1,), expected=2), CallTest(args=(21,), expected=42)]


@pytest.mark.parametrize(
    "value", ["range(10**5000)", "[range(0, -10**5000, -3)]", "Decimal('sNaN')", "Fraction(10**5000, 3)"]
)
def test_a_value_that_python_will_not_write_is_a_wrong_answer(sandbox: LocalSandbox, value: str) -> None:
    program = f"from decimal import Decimal\nfrom fractions import Fraction\ndef solve(n):\n    return {value}"
    judgement = sandbox.judge(program, CALLS, entry_point="solve", limits=LIMITS)
    assert judgement.verdict == "wrong_answer"
    assert judgement.results[0].got


@pytest.mark.parametrize(
    "frames",
    [
        "frame('loaded'), frame('raised', 0, {'type': 10**5000}, 0.0)",
        "frame('crash', {'type': 10**5000})",
        "frame('setup', {'type': 10**5000})",
        "frame('loaded'), frame('value', ('sNaN',), field(2), None, 0.0)",
        "frame('loaded', ('sNaN',))",
    ],
)
def test_forged_frames_of_a_call_are_a_runtime_error(sandbox: LocalSandbox, frames: str) -> None:
    judgement = sandbox.judge(f"{FORGER}\nleave({frames})", CALLS, entry_point="solve", limits=LIMITS)
    assert judgement.verdict == "runtime_error"


@pytest.mark.parametrize("status", ["10**5000, None", "1, {'type': 10**5000}"])
def test_forged_frames_of_a_script_are_a_runtime_error(sandbox: LocalSandbox, status: str) -> None:
    program = f"{FORGER}\nleave(frame('end', 0, {status}, 0.0))"
    assert sandbox.judge(program, [StdinTest(input="", output="2")], limits=LIMITS).verdict == "runtime_error"
    assert sandbox.run(program, limits=LIMITS).verdict == "runtime_error"


def test_a_checker_that_returns_a_huge_range_is_the_problems_fault(sandbox: LocalSandbox) -> None:
    checker = "def check(input, expected, output):\n    return range(10**5000)"
    with pytest.raises(ProblemError, match="True or False"):
        sandbox.judge("print(2)", [StdinTest(input="", output="", checker=checker)], limits=LIMITS)


def test_an_error_while_comparing_is_the_programs_failure(
    sandbox: LocalSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(value: object) -> str:
        raise OverflowError

    monkeypatch.setattr(judge_module, "show", fail)
    judgement = sandbox.judge("def solve(n): return 2 * n", CALLS, entry_point="solve", limits=LIMITS)
    assert judgement.verdict == "runtime_error"


@pytest.mark.parametrize("cpu", ["float('nan')", "-1e300", "1e300"])
def test_forged_cpu_seconds_stay_within_what_was_measured(sandbox: LocalSandbox, cpu: str) -> None:
    program = f"{FORGER}\nleave(frame('loaded'), frame('value', 0, field(42), None, {cpu}))"
    judgement = sandbox.judge(program, CALLS, entry_point="solve", limits=LIMITS)
    assert all(0 <= result.cpu_seconds < math.inf for result in judgement.results)


def test_a_large_fraction_arrives_whole() -> None:
    for value in (Fraction(10**5000, 3), Fraction(-1, 3), Fraction(0)):
        assert decode(encode(value)) == value


def test_a_fraction_too_large_to_reduce_in_time_is_refused_on_both_sides() -> None:
    with pytest.raises(TooLargeError):
        encode(Fraction(1 << (4 * MAX_FRACTION_CHARACTERS), 3))
    raw = b"f" * MAX_FRACTION_CHARACTERS + b"/3"
    with pytest.raises(CodecError):
        decode(b"Q" + len(raw).to_bytes(4, "little") + raw)


def test_an_output_limit_of_less_than_a_byte_is_refused() -> None:
    with pytest.raises(ProblemError, match="output_kb"):
        Limits(output_kb=0.0005)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["\ud800", 5])
def test_input_that_is_no_text_is_refused_at_the_door(sandbox: LocalSandbox, text: str) -> None:
    with pytest.raises(ProblemError, match="input"):
        sandbox.judge("print(1)", [StdinTest(input=text, output="1")])
    with pytest.raises(ProblemError, match="stdin"):
        sandbox.run("print(1)", stdin=text)


def test_asserts_of_one_test_share_the_programs_state(sandbox: LocalSandbox) -> None:
    counter = "c = 0\ndef nxt():\n    global c\n    c += 1\n    return c"
    test = AssertTest(code="assert nxt() == 1\nassert nxt() == 2")
    for isolation in ("program", "test"):
        assert sandbox.judge(counter, [test], entry_point="nxt", isolation=isolation).verdict == "passed"
    stuck = sandbox.judge("def nxt(): return 1", [test], entry_point="nxt")
    assert stuck.verdict == "wrong_answer"


@pytest.mark.parametrize(
    "code",
    [
        "def check(candidate):\n    assert candidate(1) == 2",
        "if f is None:\n    assert f(1) == 2",
        "assert (f(i) == i for i in range(3))",
    ],
)
def test_a_test_that_never_calls_the_program_is_the_problems_fault(sandbox: LocalSandbox, code: str) -> None:
    with pytest.raises(ProblemError, match="never calls"):
        sandbox.judge("def f(x): return 'wrong'", [AssertTest(code=code)], entry_point="f")


def test_a_grader_that_calls_its_candidate_works(sandbox: LocalSandbox) -> None:
    tests = parse_tests(["def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(2) == 4\ncheck(f)"])
    assert sandbox.judge("def f(x): return 2 * x", tests, entry_point="f").verdict == "passed"
    assert sandbox.judge("def f(x): return 2", tests, entry_point="f").verdict == "wrong_answer"


@pytest.mark.parametrize(
    "test", ["(f(1) == 2, 'message')", "[f(1)]", "{f(1)}", "{1: f(1)}", "lambda: f(1)", "(f(i) for i in [1])"]
)
def test_asserting_what_is_always_true_is_refused(test: str) -> None:
    with pytest.raises(ProblemError, match="always holds"):
        parse_tests([f"def check(f):\n    assert {test}\ncheck(f)"])
    assert parse_tests(["assert f(1) == (1, 2)", "assert [*f(1)]"])


def test_tables_of_too_many_keys_are_an_output_limit(sandbox: LocalSandbox) -> None:
    def verdict(value: str, n: int) -> str:
        tests = [CallTest(args=(n,), expected=None)]
        return sandbox.judge(f"def solve(n): return {value}", tests, entry_point="solve").verdict

    for value in ("set(range(n))", "{i: 1 for i in range(n)}", "[frozenset(range(n))]"):
        assert verdict(value, 20_000) == "wrong_answer"
        assert verdict(value, 20_001) == "output_limit"
    assert verdict("[{k: 1 for k in range(10)} for _ in range(n)]", 20_000) == "wrong_answer"


def test_a_large_argument_is_no_large_result(sandbox: LocalSandbox) -> None:
    tests = [CallTest(args=(dict.fromkeys(range(30_000)),), expected=30_000)]
    assert sandbox.judge("def solve(d): return len(d)", tests, entry_point="solve").verdict == "passed"
    whole = [AssertTest(code="d = dict.fromkeys(range(30_000))\nassert len(solve(d)) == 30_000")]
    assert sandbox.judge("def solve(d): return d", whole, entry_point="solve").verdict == "passed"


def test_keys_made_to_walk_over_each_other_do_not_hold_the_judge() -> None:
    bits = 16
    size = 1 << bits
    key, chain = 7, []
    for _ in range(size // 2):
        chain.append(key)
        key = (5 * key + 1) % size
    body = b"".join(b"i\x04\0\0\0" + (n + k * size).to_bytes(4, "little") + b"N" for k in range(2) for n in chain)
    started = time.process_time()
    with pytest.raises(CodecError, match="too many keys"):
        decode(b"d" + len(chain * 2).to_bytes(4, "little") + body)
    assert time.process_time() - started < 2.0
