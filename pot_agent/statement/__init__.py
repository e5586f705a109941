"""Examples found in a problem's statement: the tests of a problem that comes without any.

What is found: doctests, `assert` lines, examples in running text, and sample input and output. Nothing is guessed: what
can be read in two ways is left out, and so is what would need running the statement's code. An example that is wrong in
the statement is wrong here too. The work is bounded: linear in the text, with caps on how much is looked at.
"""

from pot_agent.statement.find import Examples, find_examples
from pot_agent.statement.stub import stub_in

__all__ = ["Examples", "find_examples", "stub_in"]
