"""The coding assistant (graphs/coding_agent.py) on a file whose function was left to be written."""

from graphs.coding_agent import graph

FILE = '''"""Shapes."""

import math


def area(radius):
    return math.pi * radius**2


def is_round(corners):
    """Whether a shape with that many corners is round: it has none."""
    raise NotImplementedError


def test_area():
    assert abs(area(1) - math.pi) < 1e-9


def test_is_round():
    assert is_round(0) is True
    assert is_round(4) is False
'''

if __name__ == "__main__":
    done = graph.invoke({"file": FILE})
    print(f"{done['file']}\n# {done['report']['passed']} of {done['report']['total']} tests pass")
