"""Sample input and output in contest statements: the usual forms, and what only looks like one."""

import pytest

from pot_agent.problem import parse_tests
from pot_agent.statement import find_examples


def pairs(statement: str) -> list[tuple[str, str]]:
    return [(test["input"], test["output"]) for test in find_examples(statement).tests]


class TestSamples:
    @pytest.mark.parametrize(
        "text",
        [
            "Sample Input\n```\n1 2\n```\n\nSample Output\n```\n3\n\n```\nIn the sample, 1 + 2 is 3.",
            "### Sample Input 1\n\n```\n1 2\n```\n\n### Sample Output 1\n\n```\n3\n```\n",
            "-----Sample Input-----\n1 2\n\n-----Sample Output-----\n3\n\n-----Note-----\nNothing.",
            "Examples\n\nInput\n\n1 2\n\nOutput\n\n3\n\nNote\n\nIn the first one it is 3.",
            "Example 1:\nInput:\n1 2\nOutput:\n3\n",
            "**Sample Input:**\n\n    1 2\n\n**Sample Output:**\n\n    3\n\nThe sum of 1 and 2 is what is printed.",
            "Input: 1 2\nOutput: 3\n",
            "### Input\n```\n1 2\n```\n### Output\n```\n3\n```\n",
            "## Examples\n#### Input\n1 2\n#### Output\n3\n#### Explanation\nIt is the sum.\n",
        ],
    )
    def test_a_sample_is_found_in_every_usual_form(self, text: str) -> None:
        described = "Add two numbers.\n\nInput\n\nOne line with two numbers.\n\nOutput\n\nTheir sum.\n\n"
        found = pairs(described + text)
        assert [(given.split(), wanted.split()) for given, wanted in found] == [(["1", "2"], ["3"])]
        assert find_examples(text).entry_point is None

    def test_several_samples_keep_their_order_and_their_lines(self) -> None:
        text = "Sample Input 1\n2\na b\n\nSample Output 1\nb\na\n\nSample Input 2\n1\nc\n\nSample Output 2\nc\n"
        assert pairs(text) == [("2\na b\n", "b\na\n"), ("1\nc\n", "c\n")]

    @pytest.mark.parametrize(
        "text",
        [
            "Input\n\nThe first line contains n.\n\nOutput\n\nPrint the sum.\n",
            "Input: two numbers a and b\nOutput: their sum\n",
            "Sample Input 1\n5\n\nSample Output 2\n7\n",
            "Sample Output\n7\n\nSample Input\n5\n",
            "This is an interactive problem.\n\nSample Input\n5\n\nSample Output\n7\n",
            "Sample Input\n5\n\nSample Output\n\n",
            "Sample Input\n5\n\nSample Output\n7\n\nYES indeed\n",
        ],
    )
    def test_a_format_or_an_unclear_sample_is_left_alone(self, text: str) -> None:
        assert pairs(text) == []

    def test_a_stated_error_bound_is_how_the_output_is_compared(self) -> None:
        bound = "An absolute or relative error of at most $10^{-6}$ is fine."
        text = f"{bound}\n\nSample Input\n2\n\nSample Output\n1.4142136\n"
        (test,) = parse_tests(find_examples(text).tests)
        assert (test.compare, test.rel, test.abs) == ("float", 1e-6, 1e-6)  # type: ignore[union-attr]

    def test_a_function_that_is_known_has_no_stdin_samples(self) -> None:
        text = "Sample Input\n1 2\n\nSample Output\n3\n"
        assert find_examples(text, entry_point="add").tests == ()
