"""Drive the API that LangGraph Studio uses: `python -m scripts.check_studio [--url URL]`; exit 1 names what failed.

Without a URL it starts `langgraph dev` on a free loopback port, over the seeded two-layer model of the tests, whose
text is noise: what is checked is the server's and the graph's behaviour, and no quality. The dev server has no
authentication, so it is never given another address.
"""

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from langgraph_sdk import get_sync_client

ROOT = Path(__file__).parent.parent
PROBLEM = {"problem": "Write add(a, b).", "tests": ["assert add(1, 2) == 3", "assert add(2, 2) == 4"]}
KNOBS = {"iterations": 2, "width": 2, "max_new_tokens": 8}
LONG = {"iterations": 1, "width": 8, "max_new_tokens": 100_000}  # the longest of eight takes a while
NODES = {"start", "propose", "execute", "internalize", "commit", "finish"}
START_SECONDS = 120.0


def say(condition: bool, what: str, found: Any = None) -> None:
    """One line for each check; the first that fails ends it."""
    print(("ok    " if condition else "FAILED"), what, "" if condition else f": {found!r}", flush=True)
    if not condition:
        sys.exit(1)


def check_assistants(client: Any) -> None:
    """What the server lists, the forms that Studio builds, and the drawing."""
    names = [found["graph_id"] for found in client.assistants.search(limit=100)]
    say("pot" in names, "assistants: each graph of langgraph.json has one", names)
    assistant = client.assistants.search(graph_id="pot")[0]["assistant_id"]
    schemas = client.assistants.get_schemas(assistant)
    problem = schemas["input_schema"]["properties"]["problem"]
    say(
        bool(problem.get("description") and problem.get("examples")), "input form: `problem` explained, with an example"
    )
    say("solution" in schemas["output_schema"]["properties"], "output schema: solution")
    say("iterations" in schemas["context_schema"]["properties"], "context schema: the knobs", schemas["context_schema"])
    drawn = {node["id"] for node in client.assistants.get_graph(assistant, xray=True)["nodes"]}
    say(drawn >= NODES, "xray graph: every node", drawn)


def check_run(client: Any) -> None:
    """A run that streams, and what is left of it: state and history."""
    thread = client.threads.create()["thread_id"]
    nodes, events = [], []
    for part in client.runs.stream(
        thread,
        "pot",
        input=PROBLEM,
        context=KNOBS,
        stream_mode=["updates", "custom"],
        stream_subgraphs=True,
    ):
        if part.event.split("|")[0] == "updates":
            nodes += list(part.data)
        elif part.event.split("|")[0] == "custom":
            events.append(part.data["event"])
        elif part.event == "error":
            say(False, "stream", part.data)
    say(nodes[:3] == ["start", "propose", "execute"] and nodes[-1] == "finish", "stream: updates of every node", nodes)
    say({"started", "selected", "thought", "verdict", "finished"} <= set(events), "stream: custom events", set(events))
    state = client.threads.get_state(thread)
    say(state["values"]["solution"]["stop_reason"] == "iterations", "state: the solution", state["values"])
    say(state["next"] == [], "state: nothing ahead", state["next"])
    history = client.threads.get_history(thread, limit=50)
    say(len(history) >= len(nodes), "history: a checkpoint for each step", len(history))


def check_interrupt(client: Any) -> None:
    """A breakpoint before a node, and going on from it."""
    thread = client.threads.create()["thread_id"]
    options: dict[str, Any] = {"input": PROBLEM, "context": KNOBS, "interrupt_before": ["internalize"]}
    client.runs.wait(thread, "pot", **options)
    ahead = client.threads.get_state(thread)["next"]
    say(ahead == ["internalize"], "interrupt before internalize", ahead)
    client.runs.wait(thread, "pot", input=None, context=KNOBS)
    state = client.threads.get_state(thread)
    say(bool(state["values"].get("solution")) and not state["next"], "the run goes on to its end", state["next"])


def check_cancel(client: Any) -> None:
    """Cancel while it samples; the server is free for the next run at once."""
    thread = client.threads.create()["thread_id"]
    run = client.runs.create(thread, "pot", input=PROBLEM, context=LONG, stream_mode=["custom"])
    began = time.monotonic()
    sampling = False
    for part in client.runs.join_stream(thread, run["run_id"], stream_mode=["custom"]):
        if isinstance(part.data, dict) and part.data.get("event") == "tokens":
            sampling = True
            break
    say(sampling, "a long thought is being sampled")
    began = time.monotonic()
    client.runs.cancel(thread, run["run_id"], wait=True)
    say(time.monotonic() - began < 10.0, "cancel: it ends soon", time.monotonic() - began)
    ahead = client.threads.get_state(thread)["next"]
    say(ahead == ["propose"], "cancel: the state is where it was", ahead)


def check_custom_assistant(client: Any) -> None:
    """An assistant with other knobs, as Studio's `manage assistants` makes one."""
    made = client.assistants.create("pot", context={**KNOBS, "iterations": 1, "learn": False}, name="one look")
    thread = client.threads.create()["thread_id"]
    client.runs.wait(thread, made["assistant_id"], input=PROBLEM)
    solution = client.threads.get_state(thread)["values"]["solution"]
    say((solution["iterations"], solution["updates"]) == (1, 0), "an assistant with knobs of its own", solution)
    client.assistants.delete(made["assistant_id"])


CHECKS: list[Callable[[Any], None]] = [
    check_assistants,
    check_run,
    check_interrupt,
    check_cancel,
    check_custom_assistant,
]


@contextmanager
def dev_server(folder: Path) -> Iterator[str]:
    """`langgraph dev` over the tiny model; its URL."""
    from tests.tiny import make_tiny_model

    model = make_tiny_model(folder / "tiny", context=200_000)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = folder / "log"
    with log.open("wb") as output:
        command = [Path(sys.executable).parent / "langgraph", "dev", "--no-browser", "--no-reload"]
        server = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            cwd=ROOT,
            env={
                **os.environ,
                "POT_MODEL": str(model),
                "POT_THREADS": "1",
                "LANGGRAPH_CLI_NO_ANALYTICS": "1",
                "LANGSMITH_TRACING": "false",
            },
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_for(url, server, log)
        yield url
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _wait_for(url: str, server: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and server.poll() is None:
        try:
            if httpx.get(f"{url}/ok").status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.2)
    sys.exit(f"langgraph dev did not start; its output:\n{log.read_text()[-4000:]}")


def check(url: str) -> None:
    """All checks against one server."""
    client = get_sync_client(url=url)
    for one in CHECKS:
        one(client)


def main() -> None:
    """Check the server at the URL, or one started for it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="a server that runs already, over a model with a context of 200,000 tokens")
    url = parser.parse_args().url
    if url is not None:
        check(url)
        return
    with tempfile.TemporaryDirectory() as folder, dev_server(Path(folder)) as started:
        check(started)


if __name__ == "__main__":
    main()
