"""Chat models as proposers. The models are scripted `BaseChatModel`s: real ones cost money and vary."""

import logging
import threading
import time
from typing import Any

import pytest
from langchain_core.callbacks import get_usage_metadata_callback
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field

from pot_agent import CannotLearnError, ChatModelPolicy, ConfigError, MissingExtraError, PotConfig, create_pot_agent
from pot_agent.config import LoraConfig
from pot_agent.errors import CancelledError, PolicyError
from tests.fakes import block

MESSAGES: Any = [{"role": "user", "content": "Write add."}]
PROBLEM = {"problem": "Write add.", "tests": ["assert add(1, 2) == 3", "assert add(2, 2) == 4"]}
GOOD, ZERO = block("def add(a, b):\n    return a + b"), block("def add(a, b):\n    return None")


class Chat(BaseChatModel):
    """Answers from a script, records what it was sent, and knows how many calls were under way at once."""

    model_name: str = "chatty-1"
    script: list[str] = Field(default_factory=lambda: [GOOD])
    usage: tuple[int, int] | None = (100, 7)
    seconds: float = 0.0
    sent: list[dict[str, Any]] = Field(default_factory=list)
    at_once: list[int] = Field(default_factory=list)
    release: Any = None

    def model_post_init(self, context: Any) -> None:
        self._lock, self._running = threading.Lock(), 0

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **sent: Any
    ) -> ChatResult:
        with self._lock:
            order = len(self.sent)
            self.sent.append(sent | ({"stop": stop} if stop else {}))
            self._running += 1
            self.at_once.append(self._running)
        if self.release is not None:
            self.release.wait(20)
        time.sleep(self.seconds)
        with self._lock:
            self._running -= 1
        read, wrote = self.usage or (0, 0)
        usage: Any = {"input_tokens": read, "output_tokens": wrote, "total_tokens": read + wrote}
        message = AIMessage(self.script[order % len(self.script)], usage_metadata=usage if self.usage else None)
        message.response_metadata = {"model_name": self.model_name}
        return ChatResult(generations=[ChatGeneration(message=message)])


def sample(policy: ChatModelPolicy, **options: Any) -> Any:
    policy.open("s")
    return policy.sample("s", version=0, messages=MESSAGES, **options)


def test_learning_is_refused_when_the_graph_is_built_and_the_error_says_what_is_needed() -> None:
    with pytest.raises(CannotLearnError, match=r"chatty-1 cannot learn.*learn=False.*open-weights model.*pot serve"):
        create_pot_agent(ChatModelPolicy(Chat()))
    with pytest.raises(CannotLearnError, match="no weights"):
        ChatModelPolicy(Chat()).open("s", lora=LoraConfig())


def test_without_log_probabilities_the_prior_is_uniform(sandbox: Any) -> None:
    from langgraph.checkpoint.memory import InMemorySaver

    texts = [block(f"def add(a, b):\n    return {value}") for value in range(50, 60)]
    config = PotConfig.quick(learn=False, iterations=1, width=3, prior="rescore")
    graph = create_pot_agent(Chat(script=texts), sandbox, config=config, checkpointer=InMemorySaver())
    thread: Any = {"configurable": {"thread_id": "1"}}
    graph.invoke(PROBLEM, thread)
    children = graph.get_state(thread).values["tree"][1:]
    assert [node["prior"] for node in children] == [0.25] * 4
    assert all(node["logprobs"] == [] for node in children)


def test_each_parameter_that_is_not_sent_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    chat = Chat()
    policy = ChatModelPolicy(chat, parameters=["temperature"])
    with caplog.at_level(logging.WARNING):
        sample(policy, stop=["END"], seed=3)
        sample(policy, stop=["END"], seed=3)
    assert [record.getMessage() for record in caplog.records] == [
        "chatty-1 is not sent max_tokens, seed, stop: not among its parameters"
    ]
    assert chat.sent == [{"temperature": 0.7}] * 2


def test_a_parameter_that_is_never_sent_is_an_error_that_names_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"top_k.*temperature, max_tokens, stop, seed"):
        ChatModelPolicy(Chat(), parameters=["top_k"])


def test_seeds_are_sent_where_they_are_taken_one_for_each_call_and_samples_say_so() -> None:
    chat = Chat()
    policy = ChatModelPolicy(chat, parameters=["seed"])
    assert policy.capabilities.seeded
    assert all(completion.seeded for completion in sample(policy, n=3, seed=5))
    assert sorted(sent["seed"] for sent in chat.sent) == [5, 6, 7]
    assert not ChatModelPolicy(chat).capabilities.seeded
    assert not sample(ChatModelPolicy(chat))[0].seeded


def test_stop_and_the_end_of_the_block_cut_what_comes_though_the_model_does_not_know_them() -> None:
    text = "```python\nx = 1\n```\nThis sets x. END and more"
    policy = ChatModelPolicy(Chat(script=[text]), parameters=[])
    assert sample(policy, stop=["END"])[0].text == "```python\nx = 1\n```\nThis sets x. "
    assert sample(policy, end_at_block=True)[0].text == "```python\nx = 1\n```"


def test_n_is_that_many_calls_and_each_is_counted_by_its_own_usage() -> None:
    told: list[int] = []
    completions = sample(ChatModelPolicy(Chat(usage=(100, 7))), n=3, on_tokens=told.append)
    assert [completion.tokens for completion in completions] == [7, 7, 7]
    assert [completion.prompt_tokens for completion in completions] == [100, 100, 100]
    assert told[-1] == 21


def test_tokens_are_estimated_only_where_the_model_reports_none() -> None:
    assert sample(ChatModelPolicy(Chat(usage=None)))[0].tokens > 5


def test_tokens_of_a_run_are_those_of_usage_metadata_and_a_callback_around_it_counts_each_call_at_most_once(
    sandbox: Any,
) -> None:
    chat = Chat(script=[ZERO, GOOD], usage=(100, 7))
    graph = create_pot_agent(chat, sandbox, config=PotConfig.quick(learn=False, width=2))
    with get_usage_metadata_callback() as counted:
        solution = graph.invoke(PROBLEM)["solution"]
    assert solution["tokens"] == 14 == 7 * len(chat.sent)
    assert counted.usage_metadata["chatty-1"]["output_tokens"] <= 14


def test_no_more_calls_run_at_once_than_allowed_over_all_problems() -> None:
    chat = Chat(seconds=0.05)
    policy = ChatModelPolicy(chat, max_concurrency=3)
    threads = [threading.Thread(target=sample, args=(policy,), kwargs={"n": 6}) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(chat.sent) == 18
    assert max(chat.at_once) == 3


def test_cancelling_ends_the_wait_and_starts_no_further_call() -> None:
    chat, cancel = Chat(release=threading.Event()), threading.Event()
    policy = ChatModelPolicy(chat, max_concurrency=2)
    threading.Timer(0.2, cancel.set).start()
    with pytest.raises(CancelledError):
        sample(policy, n=8, cancel=cancel)
    chat.release.set()
    policy.shutdown()
    assert len(chat.sent) == 2


def test_a_call_that_fails_is_an_error_that_says_what_to_do() -> None:
    class Refuses(Chat):
        def _generate(self, *given: Any, **named: Any) -> ChatResult:
            raise ValueError("unsupported parameter: temperature")

    with pytest.raises(PolicyError, match=r"unsupported parameter: temperature.*parameters=.*with_retry"):
        sample(ChatModelPolicy(Refuses()))


def test_a_model_with_retries_around_it_proposes_too() -> None:
    class FailsOnce(Chat):
        def _generate(self, *given: Any, **named: Any) -> ChatResult:
            if not self.sent:
                self.sent.append({})
                raise ConnectionError("try again")
            return super()._generate(*given, **named)

    policy = ChatModelPolicy(FailsOnce().with_retry(wait_exponential_jitter=False))
    assert sample(policy)[0].text == GOOD
    assert policy.capabilities.model == "chatty-1"


def test_a_name_is_loaded_at_the_first_call_and_an_unknown_one_says_so() -> None:
    policy = ChatModelPolicy("nobody:knows-this")
    create_pot_agent(policy, config=PotConfig.quick(learn=False))
    assert policy.capabilities.model == "nobody:knows-this"
    with pytest.raises((ConfigError, MissingExtraError), match="nobody:knows-this"):
        sample(policy)


@pytest.mark.parametrize("wrong", [{"max_concurrency": 0}, {"context_tokens": 0}])
def test_settings_out_of_range_are_errors_that_name_them(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        ChatModelPolicy(Chat(), **wrong)
