"""MBPP, sanitized test split (google-research, CC-BY-4.0): a sentence and three assertions or so.

Visible: the first assertion, which also tells the function's name (the sentence seldom does). Hidden: the others.
Official: all of them together, in order. With one visible test nothing can be learned from a group: rewards are 0 or 1.
"""

import ast

from pot_agent.bench.datasets.base import Row, digest_of, text_of
from pot_agent.bench.datasets.building import Whole, assertions, problem_of, separate_assertions
from pot_agent.bench.task import Task
from pot_agent.errors import DatasetError
from pot_agent.problem import Limits
from pot_agent.pysource import called_functions, parse_source
from pot_agent.values import shorten

COUNT = 257
DIGEST = "673f1ee64412d19ada21c7b36f493f4d617baf8219c133bdc7446641d8760d30"
HUB_ID, HUB_CONFIG = "google-research-datasets/mbpp", "sanitized"
LICENCE = "CC-BY-4.0"
LIMITS = Limits(cpu_seconds=10.0)
HIDDEN_LIMITS = Limits(cpu_seconds=20.0)
"""The published solution of MBPP/123 takes eight seconds for one hidden test, on a fast machine."""
TEST_IDS = range(11, 511)
"""Task ids of the test split: the file of the sanitized problems has all splits."""


def is_row(row: Row) -> bool:
    """Whether a row has this benchmark's own fields, or is an export of one."""
    return "test_list" in row or (row.get("benchmark") == "mbpp" and "visible_tests" in row)


def in_test_split(row: Row) -> bool:
    """Whether the row belongs to the test split."""
    number = row.get("task_id")
    return not isinstance(number, int) or number in TEST_IDS


def task_of(row: Row, where: str, benchmark: str) -> Task:
    """The task of a row, from whatever source: equal rows give equal tasks."""
    name = f"MBPP/{row['task_id']}" if "task_id" in row else text_of(row, "id", where)
    where = f"{where} ({name})"
    text, tests, setup = text_of(row, "prompt", where), _tests(row, where), _imports(row, where)
    entry_point = _entry_point(row, tests, where)
    visible, hidden = separate_assertions(tests[:1], tests[1:], entry_point, where)
    whole = "\n".join(tests)
    assertions([whole], where)
    return Task(
        id=name,
        benchmark=benchmark,
        kind="function",
        problem=problem_of(text, visible, where, entry_point=entry_point, setup=setup, limits=LIMITS),
        hidden=assertions(hidden, where),
        hidden_limits=HIDDEN_LIMITS,
        official=Whole(whole, entry_point, setup, HIDDEN_LIMITS),
        digest=digest_of(name, text.strip(), setup, [test.strip() for test in tests]),
        tags=tuple(row.get("tags") or ()),
    )


def _tests(row: Row, where: str) -> list[str]:
    given = row.get("test_list")
    if given is None:
        given = [test.get("code") for name in ("visible_tests", "hidden_tests") for test in row.get(name) or ()]
    if not isinstance(given, list) or not given or not all(isinstance(test, str) for test in given):
        raise DatasetError(f"{where}: test_list must be a list of assertions, got {shorten(given)}", value=given)
    return given


def _imports(row: Row, where: str) -> str:
    given = row.get("test_imports")
    if given is None:
        return text_of(row, "test_setup", where, "").strip()
    if not isinstance(given, list) or not all(isinstance(line, str) for line in given):
        raise DatasetError(f"{where}: test_imports must be a list of lines, got {shorten(given)}", value=given)
    return "\n".join(given).strip()


def _entry_point(row: Row, tests: list[str], where: str) -> str:
    """The function that the tests call: of several, the one that the published solution defines."""
    trees = [parse_source(test) or ast.Module([], []) for test in tests]
    called = set.intersection(*(_called(tree) for tree in trees))
    code = row.get("code", row.get("canonical_solution"))
    tree = parse_source(code) if isinstance(code, str) else None
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} if tree is not None else called
    found = called & defined
    if len(found) != 1:
        named = ", ".join(sorted(called)) or "none"
        raise DatasetError(f"{where}: which function is to be written? The tests call {named}", value=sorted(called))
    return found.pop()


def _called(tree: ast.AST) -> set[str]:
    """A function to be written may bear the name of a builtin."""
    names = (node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))
    return called_functions(tree) | set(names)
