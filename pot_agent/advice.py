"""What a run is warned of before it starts: with what nothing can be learned, and what it will not get."""

from pot_agent.config import PotConfig
from pot_agent.policy.base import Capabilities
from pot_agent.problem import Problem


def warnings_about(problem: Problem, config: PotConfig) -> list[str]:
    """At most one warning, the one that matters most."""
    if not problem.tests:
        return [
            "no tests were given and none were found in the statement: one greedy answer, not checked and nothing "
            'learned. Give tests, for example tests=["assert add(1, 2) == 3"]'
        ]
    if config.learn and len(problem.tests) == 1 and not config.generated_tests:
        return [
            "with one visible test nothing can be learned: a thought scores 0 or 1, and a 1 ends the search; give two "
            "tests or more, or let the model write some to learn from (generated_tests)"
        ]
    if config.learn and config.search.width == config.search.pool == 1:
        return [
            "with width 1 nothing can be learned: a group of one has no advantage; give a width of 2 or more, or pool "
            "draws (pool)"
        ]
    return []


def missing_in(policy: Capabilities, config: PotConfig) -> list[str]:
    """What was asked for and this policy does not do."""
    if config.stream_text and not policy.streams:
        return [
            f"{policy.model} tells no text while it writes: there are no `text` events, and each thought comes whole, "
            "in its `thought` event"
        ]
    return []
