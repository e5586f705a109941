"""The coding assistant (graphs/coding_agent.py) on a file whose function was left to be written."""

from graphs.coding_agent import graph

FILE = '''"""Numbers."""

LIMIT = 100


def is_even(n):
    """Whether the integer n is even."""
    raise NotImplementedError


def evens(numbers):
    """The even numbers below LIMIT, in their order."""
    return [n for n in numbers if n < LIMIT and is_even(n)]


def test_is_even():
    assert is_even(4) is True
    assert is_even(7) is False


def test_evens():
    assert evens([1, 2, 104, 6]) == [2, 6]
'''

if __name__ == "__main__":
    done = graph.invoke({"file": FILE})
    print(f"{done['file']}\n# {done['report']['passed']} of {done['report']['total']} tests pass")
