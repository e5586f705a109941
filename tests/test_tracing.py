"""What watches a run sees it: sampling as `llm` runs with their tokens, steps as spans, logs as the library's own."""

import ast
import asyncio
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler, get_usage_metadata_callback
from langchain_core.tracers import BaseTracer
from langgraph.checkpoint.memory import InMemorySaver
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pot_agent import PotConfig, create_pot_agent, spans
from pot_agent.errors import CancelledError
from pot_agent.policy.local import LocalPolicy
from tests.fakes import ScriptedPolicy, block
from tests.policy.serving import serving
from tests.tiny import make_tiny_model

PROBLEM = {"problem": "Write add(a, b).", "tests": ["assert add(1, 2) == 3", "assert add(2, 2) == 4"]}
SCRIPT = [block(f"def add(a, b):\n    return {number}") for number in (9, 3, 8)]


def agent(sandbox: Any, policy: ScriptedPolicy | None = None, **options: Any) -> Any:
    config = PotConfig.quick(iterations=1, width=2)
    return create_pot_agent(policy or ScriptedPolicy(SCRIPT), sandbox, config=config, **options)


class Tracer(BaseTracer):
    """Keeps the finished tree of runs, in LangSmith's own format."""

    def __init__(self) -> None:
        super().__init__()
        self.roots: list[Any] = []

    def _persist_run(self, run: Any) -> None:
        self.roots.append(run)

    def runs(self, kind: str) -> list[tuple[str, Any]]:
        """Each run of a kind with the name of the run above it."""
        found: list[tuple[str, Any]] = []

        def visit(run: Any, above: str) -> None:
            if run.run_type == kind:
                found.append((above, run))
            for child in run.child_runs:
                visit(child, run.name)

        for root in self.roots:
            visit(root, "")
        return found


def test_each_sampling_call_is_an_llm_run_below_its_step_with_its_use_of_tokens(sandbox: Any) -> None:
    tracer = Tracer()
    agent(sandbox).invoke(PROBLEM, {"callbacks": [tracer]})
    calls = tracer.runs("llm")
    assert [(above, run.name) for above, run in calls] == [("propose", "sample propose"), ("commit", "sample commit")]
    proposed = calls[0][1]
    assert proposed.outputs["llm_output"]["token_usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 20,
        "total_tokens": 25,
    }
    thoughts = [generation["message"]["kwargs"]["content"] for generation in proposed.outputs["generations"][0]]
    assert thoughts == SCRIPT[:2]
    kept = [generation["message"]["kwargs"] for generation in proposed.outputs["generations"][0]]
    assert [one.get("usage_metadata", {}).get("total_tokens") for one in kept] == [25, None]
    assert [one["response_metadata"]["completion_tokens"] for one in kept] == [10, 10]
    assert "Write add(a, b)." in str(proposed.inputs)
    assert proposed.extra["metadata"]["ls_model_name"] == "scripted"
    assert proposed.extra["invocation_params"]["adapter_version"] == 0


def test_langchains_own_counter_of_tokens_counts_every_thought(sandbox: Any) -> None:
    with get_usage_metadata_callback() as counted:
        found = agent(sandbox).invoke(PROBLEM)
    used = counted.usage_metadata["scripted"]
    assert used["output_tokens"] == found["solution"]["tokens"] == 30
    assert used["input_tokens"] == 5 + 5  # a prompt for the group, and one for the commit
    assert used["total_tokens"] == 40


def test_async_runs_show_their_sampling_to_sync_and_async_handlers(sandbox: Any) -> None:
    class Awaited(AsyncCallbackHandler):
        def __init__(self) -> None:
            self.tokens = 0

        async def on_llm_end(self, response: Any, **_: Any) -> None:
            self.tokens += response.llm_output["token_usage"]["completion_tokens"]

    tracer, awaited = Tracer(), Awaited()
    asyncio.run(agent(sandbox).ainvoke(PROBLEM, {"callbacks": [tracer, awaited]}))
    assert [above for above, _ in tracer.runs("llm")] == ["propose", "commit"]
    assert awaited.tokens == 30


def test_thoughts_are_messages_for_who_streams_messages(sandbox: Any) -> None:
    streamed = [message for message, _ in agent(sandbox).stream(PROBLEM, stream_mode="messages")]
    assert [message.text for message in streamed if message.text] != []
    assert {message.text for message in streamed} <= {*SCRIPT, ""}


def test_sampling_that_is_stopped_is_an_llm_run_that_failed(sandbox: Any) -> None:
    tracer = Tracer()
    policy = ScriptedPolicy(SCRIPT, wait=True)
    agent(sandbox, policy).invoke(PROBLEM, {"callbacks": [tracer]}, context={"max_seconds": 0.3})
    ((_, run),) = tracer.runs("llm")
    assert CancelledError.__name__ in run.error


def test_a_handler_that_fails_does_not_end_the_run(sandbox: Any) -> None:
    class Broken(BaseCallbackHandler):
        def on_chat_model_start(self, *_: Any, **__: Any) -> None:
            raise OSError("no network")

        def on_llm_end(self, *_: Any, **__: Any) -> None:
            raise OSError("no network")

    found = agent(sandbox).invoke(PROBLEM, {"callbacks": [Broken()]})
    assert found["solution"]["stop_reason"] == "iterations"


@pytest.fixture(scope="module")
def exported() -> Iterator[InMemorySpanExporter]:
    """What an application's own OpenTelemetry set-up gets; it can be set once in a process."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    yield exporter
    provider.shutdown()


def test_each_step_is_a_span_of_one_trace_that_carries_numbers_and_no_text(
    sandbox: Any, exported: InMemorySpanExporter
) -> None:
    exported.clear()
    with trace.get_tracer("application").start_as_current_span("request"):
        agent(sandbox).invoke(PROBLEM)
    spans = exported.get_finished_spans()
    steps = [span.name for span in spans if span.name.startswith("pot.")]
    assert steps == ["pot.start", "pot.propose", "pot.execute", "pot.internalize", "pot.commit", "pot.finish"]
    assert len({span.context.trace_id for span in spans}) == 1
    by_name = {span.name: span.attributes or {} for span in spans}
    assert by_name["pot.internalize"]["pot.version"] == 1
    assert by_name["pot.commit"]["pot.stop_reason"] == "iterations"
    assert "add" not in str(by_name)


def test_a_policy_server_goes_on_with_the_trace_of_its_caller(
    sandbox: Any, exported: InMemorySpanExporter, tmp_path: Path
) -> None:
    exported.clear()
    with LocalPolicy(str(make_tiny_model(tmp_path / "tiny", context=2048)), threads=1) as local, serving(local) as url:
        config = PotConfig.quick(iterations=1, width=2, max_new_tokens=8)
        create_pot_agent(url, sandbox, config=config).invoke(PROBLEM)
    found = {span.context.span_id: span for span in exported.get_finished_spans()}
    above = {(span.name, found[span.parent.span_id].name) for span in found.values() if span.parent is not None}
    assert {("pot.server.sample", "pot.propose"), ("pot.server.internalize", "pot.internalize")} <= above
    assert {("pot.server.open", "pot.start"), ("pot.server.close", "pot.finish")} <= above


def test_a_run_without_opentelemetry_is_the_same(sandbox: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    spans._opentelemetry.cache_clear()
    try:
        assert agent(sandbox).invoke(PROBLEM)["solution"]["stop_reason"] == "iterations"
        headers: dict[str, str] = {}
        spans.carry_trace(headers)
        assert headers == {}
    finally:
        spans._opentelemetry.cache_clear()


def test_the_package_logs_by_the_standard_library_and_prints_nothing() -> None:
    root = Path(__file__).parent.parent / "pot_agent"
    speaking = {root / "cli.py", *(root / "shell").glob("*.py")}  # they are the shell's
    for file in sorted(set(root.rglob("*.py")) - speaking):
        calls = [node.func for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
        assert not [call for call in calls if isinstance(call, ast.Name) and call.id == "print"], file
    named = [name for name in logging.root.manager.loggerDict if name.startswith("pot_agent")]
    assert named
    assert not [name for name in named if logging.getLogger(name).handlers]  # whose they are is the application's


def test_a_checkpointer_and_a_tracer_together_change_nothing(sandbox: Any) -> None:
    graph = agent(sandbox, checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}, "callbacks": [Tracer()]}
    graph.invoke(PROBLEM, config, interrupt_before=["internalize"])
    assert graph.get_state(config).next == ("internalize",)
    assert graph.invoke(None, config)["solution"]["iterations"] == 1
