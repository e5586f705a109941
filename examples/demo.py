"""`make demo`: a real problem, a real model on this machine, a real sandbox, real learning, in a few minutes.

The problem was chosen because the embedded model gets it wrong greedily and right now and then when sampled, and
because it has two visible tests or more, so that a thought can be half right and a group can be learned from.
"""

import argparse
import json
import os
from pathlib import Path

from rich.console import Console

from graphs.pot import graph
from pot_agent.shell.progress import Progress
from pot_agent.shell.solving import report, solve
from pot_agent.shell.views import picture

PROBLEMS = Path(__file__).parent / "problems"


def save_picture(progress: Progress, path: Path) -> None:
    """The last picture of a run as an SVG file."""
    with open(os.devnull, "w") as nowhere:
        console = Console(file=nowhere, record=True, width=118)
        console.print(picture(progress))
        console.save_svg(str(path), title="make demo")


def main() -> None:
    """Solve one problem and say how it ended; an error only when the line did not run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problem", default="humaneval_16", help="name of a file in examples/problems")
    parser.add_argument("--width", type=int, default=3, help="thoughts an iteration (the quick budget has 8)")
    parser.add_argument("--picture", type=Path, help="write the last picture of the run here, as SVG")
    given = parser.parse_args()
    console = Console(stderr=True)
    problem = json.loads((PROBLEMS / f"{given.problem}.json").read_text())
    console.print(f"[bold]{problem['id']}[/]: {problem['note']}\n", highlight=False, soft_wrap=True)
    console.print(problem["problem"], style="dim", markup=False, highlight=False)
    progress = solve(graph, problem, console, context={"width": given.width})
    report(progress.solution, console, as_json=False)
    if given.picture:
        save_picture(progress, given.picture)
    console.print("The adapter is gone, and the base model is as it was.", highlight=False)


if __name__ == "__main__":
    main()
