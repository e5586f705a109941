"""Where the first block of code ends."""

import pytest

from pot_agent.policy.base import Policy
from pot_agent.policy.blocks import end_of_first_block
from tests.policy.contract import draw, opened, told

PROGRAM = "```python\nprint(1)\n```"


@pytest.mark.parametrize(
    "text",
    [
        PROGRAM,
        f"Here it is:\n\n{PROGRAM}",
        "```\nprint(1)\n```",
        "```Python3\nprint(1)\n```",
        "  ```py\n  print(1)\n  ```",
        "~~~python\nprint(1)\n~~~",
        "````python\ns = '''\n```\n'''\n````",
        f"```bash\npip install x\n```\n{PROGRAM}",
        f"```python\n\n```\n{PROGRAM}",
        f"<think>\n```python\nwrong\n```\n</think>\n{PROGRAM}",
        f"```python\nwrong\n```\n</think>\n{PROGRAM}",
    ],
)
@pytest.mark.parametrize("after", ["", "\n", "\n\nThis prints one.\n```python\nprint(2)\n```\n"])
def test_it_ends_where_its_fence_closes(text: str, after: str) -> None:
    assert end_of_first_block(text + after) == len(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "print(1)",
        "```python\nprint(1)",
        "```python\nprint('```')\n",
        "```python\nprint(1) ```",
        "```bash\nls\n```",
        "```python\n\n```",
        f"<think>\n{PROGRAM}\n",
        "````python\nprint(1)\n```",
    ],
)
def test_no_block_has_ended_here(text: str) -> None:
    assert end_of_first_block(text) is None


def test_draws_do_not_depend_on_it_where_there_is_no_block(policy: Policy) -> None:
    session = opened(policy, lora=None)
    assert told(draw(policy, session, end_at_block=True)) == told(draw(policy, session))
