"""HumanEval (openai/human-eval, MIT): complete a stub; graded by a function `check(candidate)`.

Visible tests: the examples in the docstring, as `pot_agent.statement` finds them, with those of
`humaneval_examples.json` for the problems whose examples no rule reads (`own` ones where a docstring has fewer than
one that counts). An example that the grader contradicts (HumanEval/47, /116) is not shown as a test; the published
text of the statement stays as it is. Hidden tests: the assertions of `check`, apart from those about a visible call.
Official: the grader's text as it is, whole, against the program, within `LIMITS` (published: three seconds).
"""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from pot_agent.bench.datasets.asserts import split_check
from pot_agent.bench.datasets.base import Row, digest_of, text_of
from pot_agent.bench.datasets.building import Whole, assertions, problem_of, separate_assertions
from pot_agent.bench.task import Task
from pot_agent.errors import DatasetError
from pot_agent.problem import Limits
from pot_agent.statement import find_examples

COUNT = 164
DIGEST = "92f42c14910285ee41bea098c38c5cfd97a879e2a5d3bf258c33003e7a658e9e"
HUB_ID = "openai/openai_humaneval"
LICENCE = "MIT"
LIMITS = Limits(cpu_seconds=10.0)


def is_row(row: Row) -> bool:
    """Whether a row has this benchmark's own fields, or those of an export that keeps them."""
    return "entry_point" in row and ("test" in row or "official_test" in row)


def task_of(row: Row, where: str, benchmark: str) -> Task:
    """The task of a row, from whatever source: equal rows give equal tasks."""
    name = text_of(row, "task_id" if "task_id" in row else "id", where)
    prompt, entry_point = text_of(row, "prompt", where), text_of(row, "entry_point", where)
    test = text_of(row, "official_test" if "official_test" in row else "test", where)
    where = f"{where} ({name})"
    carried = _carried_examples().get(name)
    shown = carried["tests"] if carried is not None else _found(prompt, entry_point)
    visible, hidden = separate_assertions(shown, split_check(test, entry_point), entry_point, where)
    own = carried is not None and carried["own"]
    problem = problem_of(
        prompt,
        visible,
        where,
        entry_point=entry_point,
        starter_code=prompt,
        limits=LIMITS,
        evidence="given" if own else "examples",
    )
    whole = f"{test.rstrip()}\n\ncheck({entry_point})\n"
    assertions([whole], where)
    return Task(
        id=name,
        benchmark=benchmark,
        kind="function",
        problem=problem,
        hidden=assertions(hidden, where),
        hidden_limits=LIMITS,
        official=Whole(whole, entry_point, "", LIMITS),
        digest=digest_of(name, prompt, entry_point, test),
        tags=tuple(row.get("tags") or ()),
        note="" if len(visible) == len(shown) else "an example of the statement is not among the visible tests",
    )


def _found(prompt: str, entry_point: str) -> list[str]:
    found = find_examples(prompt, entry_point=entry_point).tests
    return [str(test["code"]) for test in found if test["type"] == "assert"]


@cache
def _carried_examples() -> dict[str, dict[str, Any]]:
    """Examples that are read from prose by people, by problem."""
    text = files(__package__ or "pot_agent.bench.datasets").joinpath("humaneval_examples.json").read_text("utf-8")
    examples: Any = json.loads(text)
    if not isinstance(examples, dict):
        raise DatasetError("humaneval_examples.json is damaged: install this package again", value=type(examples))
    return examples
