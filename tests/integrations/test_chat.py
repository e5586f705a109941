"""PoT as a chat model. The policy is scripted, the sandbox is real."""

import asyncio
import copy
import pickle
import threading
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler, get_usage_metadata_callback
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableLambda
from langgraph.graph import END, START, MessagesState, StateGraph

from pot_agent import ConfigError, PotConfig, ProblemError, create_pot_agent
from pot_agent.integrations import ChatPoT
from tests.fakes import ScriptedPolicy, block

GOOD, HALF, ZERO = (block(f"def add(a, b):\n    return {value}") for value in ("a + b", "3", "None"))
ASKED = "Write add(a, b).\n\n>>> add(1, 2)\n3\n>>> add(2, 2)\n4"
TESTS = ["assert add(1, 2) == 3", "assert add(2, 2) == 4"]


def chat(sandbox: Any, script: list[str] | None = None, **fields: Any) -> ChatPoT:
    policy = fields.pop("scripted", None) or ScriptedPolicy(script or [ZERO, GOOD])
    return ChatPoT(graph=create_pot_agent(policy, sandbox, config=PotConfig.quick(iterations=2, width=2)), **fields)


def solution_of(message: AIMessage) -> dict[str, Any]:
    return dict(message.response_metadata["solution"])


def test_it_answers_with_the_program_in_a_fence_and_the_solution_beside_it(sandbox: Any) -> None:
    message = chat(sandbox).invoke(ASKED)
    assert message.text.startswith("```python\ndef add(a, b):\n    return a + b\n```\n")
    assert "Passes 2 of 2 examples of the statement" in message.text
    assert solution_of(message)["solved"] is True
    assert message.response_metadata["model_name"] == "scripted"


def test_a_program_that_fails_is_said_to_fail(sandbox: Any) -> None:
    message = chat(sandbox, [ZERO, HALF]).invoke(ASKED)
    assert "Passes 1 of 2" in message.text
    assert solution_of(message)["solved"] is False


def test_a_fence_is_longer_than_any_in_the_program(sandbox: Any) -> None:
    program = 'def add(a, b):\n    """```"""\n    return a + b'
    message = chat(sandbox, [f"````python\n{program}\n````"]).invoke(ASKED)
    assert message.text.startswith(f"````python\n{program}\n````\n")


def test_tests_come_from_the_model_or_from_a_call_and_the_call_wins(sandbox: Any) -> None:
    always = ["assert add(1, 1) == 2"]
    assert solution_of(chat(sandbox, [GOOD], tests=always).invoke("Write add."))["tests_total"] == 1
    model = chat(sandbox, [GOOD], tests=always)
    assert solution_of(model.invoke("Write add.", tests=TESTS))["tests_total"] == 2
    assert solution_of(model.bind(tests=TESTS).invoke("Write add."))["tests_total"] == 2


def test_without_tests_it_says_that_nothing_was_tested(sandbox: Any) -> None:
    message = chat(sandbox, [GOOD]).invoke("Write add.")
    assert "Not tested" in message.text
    assert solution_of(message)["solved"] is None


def test_earlier_turns_are_context_and_no_source_of_tests(sandbox: Any) -> None:
    policy = ScriptedPolicy([GOOD])
    earlier = [SystemMessage("Use no imports."), HumanMessage("Write mul.\n>>> mul(2, 2)\n4"), AIMessage("mul it is")]
    message = chat(sandbox, scripted=policy).invoke([*earlier, HumanMessage(ASKED)])
    assert solution_of(message)["tests_total"] == 2
    prompt = policy.of("sample")[0]["messages"][1]["content"]
    assert "Instructions: Use no imports." in prompt
    assert "Assistant: mul it is" in prompt


def test_what_is_no_text_is_an_error_and_not_left_out(sandbox: Any) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    with pytest.raises(ProblemError, match="image_url"):
        chat(sandbox).invoke([HumanMessage([{"type": "text", "text": ASKED}, picture])])
    with pytest.raises(ProblemError, match="human message"):
        chat(sandbox).invoke([SystemMessage("Be brief.")])


def test_a_call_turns_the_knobs_of_a_run_and_refuses_what_it_does_not_know(sandbox: Any) -> None:
    policy = ScriptedPolicy([ZERO])
    message = chat(sandbox, scripted=policy, iterations=2).invoke(ASKED, iterations=1, learn=False)
    assert solution_of(message)["iterations"] == 1
    assert policy.of("internalize") == []
    with pytest.raises(ConfigError, match=r"takes no top_k"):
        chat(sandbox).invoke(ASKED, top_k=3)
    with pytest.raises(ValueError, match="tests_"):
        ChatPoT(tests_=TESTS)


def test_a_temperature_of_zero_is_an_error_that_names_it(sandbox: Any) -> None:
    with pytest.raises(ConfigError, match="temperature"):
        chat(sandbox, temperature=0).invoke(ASKED)


def test_stop_cuts_the_text_and_leaves_the_solution_whole(sandbox: Any) -> None:
    message = chat(sandbox, stop=["    return"]).invoke(ASKED)
    assert message.text == "```python\ndef add(a, b):\n"
    assert "return a + b" in solution_of(message)["program"]


def test_awaited_and_streamed_it_answers_the_same(sandbox: Any) -> None:
    model = chat(sandbox, [GOOD])
    invoked = model.invoke(ASKED)
    whole: Any = None
    for chunk in model.stream(ASKED):
        whole = chunk if whole is None else whole + chunk

    async def others() -> list[Any]:
        chunks = [chunk async for chunk in model.astream(ASKED)]
        return [await model.ainvoke(ASKED), sum(chunks[1:], chunks[0])]

    for message in (whole, *asyncio.run(others())):
        assert message.text == invoked.text
        assert message.usage_metadata == invoked.usage_metadata
        assert solution_of(message)["solved"] is True
    assert isinstance(whole, AIMessageChunk)


class Listener(BaseCallbackHandler):
    """Keeps the custom events that it is told."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    def on_custom_event(self, name: str, data: Any, **_: Any) -> None:
        self.heard.append((name, data["event"]))


def test_progress_is_told_by_custom_events(sandbox: Any) -> None:
    for run in (lambda model, how: model.invoke(ASKED, how), lambda model, how: asyncio.run(model.ainvoke(ASKED, how))):
        listener = Listener()
        run(chat(sandbox), {"callbacks": [listener]})
        assert [event for _, event in listener.heard][:: len(listener.heard) - 1] == ["started", "finished"]
        assert {name for name, _ in listener.heard} == {"pot"}


def test_tokens_are_counted_once_however_they_are_counted(sandbox: Any) -> None:
    model = chat(sandbox, [ZERO, ZERO, ZERO, ZERO, GOOD])
    with get_usage_metadata_callback() as counted:
        message = (RunnableLambda(lambda asked: asked) | model).invoke(ASKED)
    assert message.usage_metadata == {"input_tokens": 15, "output_tokens": 50, "total_tokens": 65}
    assert counted.usage_metadata == {"scripted": message.usage_metadata}


def test_in_a_graph_that_streams_messages_only_its_answer_is_one(sandbox: Any) -> None:
    model = chat(sandbox)
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_edge(START, "model")
    builder.add_edge("model", END)
    streamed = [part for part, _ in builder.compile().stream({"messages": [("user", ASKED)]}, stream_mode="messages")]
    assert "".join(part.text for part in streamed).count("def add") == 1


def test_cancelling_stops_the_run_and_frees_the_adapter(sandbox: Any) -> None:
    policy = ScriptedPolicy([ZERO], wait=True)

    async def run() -> None:
        task = asyncio.create_task(chat(sandbox, scripted=policy).ainvoke(ASKED))
        await asyncio.to_thread(policy.sampling.wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert policy.ended.wait(20)
    for _ in range(200):
        if not policy.versions:
            break
        threading.Event().wait(0.05)
    assert policy.versions == {}


def test_the_cancel_event_of_a_graph_around_it_ends_the_run_with_the_best_so_far(sandbox: Any) -> None:
    policy, event = ScriptedPolicy([ZERO], wait=True), threading.Event()
    threading.Timer(0.3, event.set).start()
    link = RunnableLambda(lambda asked: asked) | chat(sandbox, scripted=policy)
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [link.invoke(state["messages"])]})
    builder.add_edge(START, "model")
    builder.add_edge("model", END)
    given: Any = {"messages": [("user", ASKED)]}
    found = builder.compile().invoke(given, {"configurable": {"cancel": event}})
    assert solution_of(found["messages"][-1])["stop_reason"] == "cancelled"


def test_a_batch_is_answered_in_order(sandbox: Any) -> None:
    answers = chat(sandbox, [GOOD]).batch([ASKED, "Write add.", ASKED])
    assert [solution_of(answer)["tests_total"] for answer in answers] == [2, 0, 2]


def test_it_can_be_pickled_and_copied_unless_it_was_given_a_graph(sandbox: Any) -> None:
    model = ChatPoT(policy="http://127.0.0.1:1", iterations=3, tests=TESTS)
    model._solver()
    again = pickle.loads(pickle.dumps(model))
    assert again._identifying_params == model._identifying_params
    assert copy.copy(model).iterations == 3
    with pytest.raises(ConfigError, match="cannot be pickled"):
        pickle.dumps(chat(sandbox))


def test_models_that_answer_differently_are_told_apart_by_a_cache(sandbox: Any) -> None:
    keys = [ChatPoT(), ChatPoT(iterations=3), ChatPoT(tests=TESTS), ChatPoT(learn=False), chat(sandbox), chat(sandbox)]
    shown = [str(sorted(model._identifying_params.items(), key=str)) for model in keys]
    assert len(set(shown)) == len(shown)


def test_it_calls_no_tools_and_says_so() -> None:
    with pytest.raises(NotImplementedError):
        ChatPoT().bind_tools([])
