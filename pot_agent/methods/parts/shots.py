"""Worked examples for the few-shot prompt, and the prompt with them.

For functions: the statements, tests and programs of MBPP's tasks 2, 3 and 4, the data set's usual examples, which are
in none of its splits for testing (Austin et al., arXiv 2108.07732; CC-BY-4.0). The reasoning above each program is our
own. For programs that read standard input: two examples of our own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pot_agent.policy.base import Message
from pot_agent.problem import Problem, StdinTest
from pot_agent.prompts import BuiltPrompt, build_messages

THINK = "First explain step by step how to solve it. Then write the program."


@dataclass(frozen=True, kw_only=True)
class Shot:
    """A problem with its visible tests, the way to its solution, and the solution."""

    problem: dict[str, Any]
    thought: str
    program: str


FUNCTIONS = (
    Shot(
        problem={
            "problem": "Write a function to find the shared elements from the given two lists.",
            "tests": [
                "assert set(similar_elements((3, 4, 5, 6),(5, 7, 4, 10))) == set((4, 5))",
                "assert set(similar_elements((1, 2, 3, 4),(5, 4, 3, 7))) == set((3, 4))",
                "assert set(similar_elements((11, 12, 14, 13),(17, 15, 14, 13))) == set((13, 14))",
            ],
        },
        thought="The tests turn the result into a set, so its order does not matter and no element is needed twice. "
        "The elements that both tuples have are the intersection of their sets. The tests pass tuples, so I return a "
        "tuple.",
        program="def similar_elements(test_tup1, test_tup2):\n"
        "  res = tuple(set(test_tup1) & set(test_tup2))\n  return (res)",
    ),
    Shot(
        problem={
            "problem": "Write a python function to identify non-prime numbers.",
            "tests": [
                "assert is_not_prime(2) == False",
                "assert is_not_prime(10) == True",
                "assert is_not_prime(35) == True",
                "assert is_not_prime(37) == False",
            ],
        },
        thought="A number is not prime if something from 2 on divides it. If it has a divisor at all, one is at most "
        "its square root, so I try 2 up to that. For 2 and 3 there is nothing to try, and the answer is False, as the "
        "first test wants for 2.",
        program="import math\ndef is_not_prime(n):\n    result = False\n    for i in range(2,int(math.sqrt(n)) + 1):\n"
        "        if n % i == 0:\n            result = True\n    return result",
    ),
    Shot(
        problem={
            "problem": "Write a function to find the n largest integers from a given list of numbers, returned in "
            "descending order.",
            "tests": [
                "assert heap_queue_largest( [25, 35, 22, 85, 14, 65, 75, 22, 58],3)==[85, 75, 65]",
                "assert heap_queue_largest( [25, 35, 22, 85, 14, 65, 75, 22, 58],2)==[85, 75]",
                "assert heap_queue_largest( [25, 35, 22, 85, 14, 65, 75, 22, 58],5)==[85, 75, 65, 58, 35]",
            ],
        },
        thought="The list is the first argument and n the second. heapq.nlargest gives the n largest as a list, the "
        "largest first, which is the order that is asked for.",
        program="import heapq as hq\ndef heap_queue_largest(nums,n):\n  largest_nums = hq.nlargest(n, nums)\n"
        "  return largest_nums",
    ),
)
PROGRAMS = (
    Shot(
        problem={
            "problem": "A shelf has n boxes. The first line of the input has n, the second the weights of the boxes. "
            "Print how many boxes are heavier than the mean weight.",
            "tests": [{"input": "4\n1 2 3 6\n", "output": "1\n"}, {"input": "3\n5 5 5\n", "output": "0\n"}],
        },
        thought="Weight w is above the mean if w > total / n. Comparing w * n with the total keeps to whole numbers: "
        "nothing is rounded. In the first example the total is 12 and n is 4: only 6 * 4 = 24 is more than 12.",
        program="n = int(input())\nweights = list(map(int, input().split()))\ntotal = sum(weights)\n"
        "print(sum(1 for w in weights if w * n > total))",
    ),
    Shot(
        problem={
            "problem": "Each line of the input is a word. Print the words in the order of their lengths, the shortest "
            "first; words of one length stay in the order of the input.",
            "tests": [{"input": "pear\nfig\nplum\n", "output": "fig\npear\nplum\n"}],
        },
        thought="The number of lines is not given, so I read to the end of the input. Python's sort is stable: sorting "
        "by length leaves words of one length in their order.",
        program="import sys\nfor word in sorted(sys.stdin.read().split(), key=len):\n    print(word)",
    ),
)


def with_shots(problem: Problem, *, max_tokens: int, count: Callable[[str | list[Message]], int]) -> BuiltPrompt:
    """As many examples as fit, then the problem as every method shows it, each with the request to reason first."""
    room = max(0, max_tokens - count(f"\n\n{THINK}\n"))
    system, asked = build_messages(problem, [], max_tokens=room, count=count).messages
    turns = _turns(any(isinstance(test, StdinTest) for test in problem.tests))
    for shown in range(len(turns), -1, -1):
        messages = [system, *(message for turn in turns[:shown] for message in turn), _thinking(asked)]
        tokens = count(messages)
        if tokens <= max_tokens:
            break
    return BuiltPrompt(messages=messages, tokens=tokens, dropped=len(turns) - shown)


@cache
def _turns(reads_stdin: bool) -> Sequence[tuple[Message, Message]]:
    return [_turn(shot) for shot in (PROGRAMS if reads_stdin else FUNCTIONS)]


def _turn(shot: Shot) -> tuple[Message, Message]:
    problem = Problem.parse(shot.problem)
    _, asked = build_messages(problem, [], max_tokens=1_000_000, count=lambda content: 0).messages
    answer = f"{shot.thought}\n\n```python\n{shot.program}\n```"
    return _thinking(asked), Message(role="assistant", content=answer)


def _thinking(asked: Message) -> Message:
    return Message(role="user", content=f"{asked['content']}\n\n{THINK}")
