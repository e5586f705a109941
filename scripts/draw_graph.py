"""Put the current drawing of the graph into the README: `python -m scripts.draw_graph`; a test checks for it."""

import re
from pathlib import Path

from pot_agent import create_pot_agent

README = Path(__file__).parent.parent / "README.md"


def drawing() -> str:
    """The graph as a Mermaid block for the README."""
    return f"```mermaid\n{create_pot_agent().get_graph().draw_mermaid().strip()}\n```"


if __name__ == "__main__":
    README.write_text(re.sub(r"```mermaid\n.*?\n```", lambda _: drawing(), README.read_text(), flags=re.DOTALL))
