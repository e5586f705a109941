"""The bodies of the policy server's requests and answers, as its OpenAPI shows them.

Limits: only *types* are checked here. Ranges (a temperature, a number of completions) are the policy's to refuse, so
that a bad value meets the same error over HTTP as in process.
"""

from dataclasses import asdict
from typing import Annotated, Any, Literal

import pydantic
from pydantic import BaseModel, BeforeValidator, ConfigDict, StrictFloat, StrictInt, StrictStr

from pot_agent.config import GrpoConfig, LoraConfig
from pot_agent.policy.base import Capabilities, Completion, Measure, Message, Receipt, SessionInfo
from pot_agent.policy.wire import from_wire

WireFloat = Annotated[StrictFloat, BeforeValidator(from_wire)]
"""A number; one that is not finite is written `{"$float": "nan"}`."""

_STRICT_KEYS = ConfigDict(extra="forbid")

LoraBody = pydantic.dataclasses.dataclass(LoraConfig, config=_STRICT_KEYS, frozen=True, kw_only=True)
GrpoBody = pydantic.dataclasses.dataclass(GrpoConfig, config=_STRICT_KEYS, frozen=True, kw_only=True)
"""The configuration classes themselves, with unknown keys refused; a bad value raises their own `ConfigError`."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class MessageBody(_Body):
    """One chat message."""

    role: Literal["system", "user", "assistant"]
    content: StrictStr


class OpenBody(_Body):
    """Arguments of `open`; without `lora` the session samples from the base and cannot learn."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"lora": {"rank": 8, "alpha": 16.0}, "seed": 7}, {}]})

    lora: LoraBody | None = None  # type: ignore[valid-type]
    seed: StrictInt = 0

    def lora_config(self) -> LoraConfig | None:
        """The plain configuration, so that equal arguments compare equal wherever they came from."""
        return None if self.lora is None else LoraConfig(**asdict(self.lora))


class SampleBody(_Body):
    """Arguments of `sample`; `temperature` 0 is greedy."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "version": 0,
                    "messages": [{"role": "user", "content": "Write a function that adds two numbers."}],
                    "n": 3,
                    "temperature": 0.7,
                    "max_tokens": 64,
                    "seed": 1,
                }
            ]
        }
    )

    version: StrictInt
    messages: list[MessageBody]
    n: StrictInt = 1
    temperature: WireFloat = 0.7
    max_tokens: StrictInt = 256
    seed: StrictInt = 0
    stop: list[StrictStr] = []
    end_at_block: bool = False
    stream: bool = False
    """Whether the text is told while it is written: `application/x-ndjson`, lines of `{"text": {index: piece}}` and at
    last the plain answer, or the refusal."""


class ScoreBody(_Body):
    """Arguments of `score`; no `temperature` means 1.0, `self_certainty` is KL(uniform || p) for each token."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"version": 1, "sample_ids": ["p1-6f0c"]}]})

    version: StrictInt
    sample_ids: list[StrictStr]
    temperature: WireFloat | None = None
    measure: Measure = "logprob"


class InternalizeBody(_Body):
    """Arguments of `internalize`; fields of `grpo` left out have the paper's values."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"version": 0, "rewards": {"p1-6f0c": 1.0, "p1-91ab": 0.0}, "grpo": {"epochs": 3}},
            ]
        }
    )

    version: StrictInt
    rewards: dict[str, WireFloat]
    grpo: GrpoBody  # type: ignore[valid-type]
    teachers: dict[str, list[MessageBody]] | None = None

    def teacher_messages(self) -> dict[str, list[Message]] | None:
        """The teachers' prompts by sample id."""
        if self.teachers is None:
            return None
        return {
            sample: [Message(role=m.role, content=m.content) for m in messages]
            for sample, messages in self.teachers.items()
        }

    def grpo_config(self) -> GrpoConfig:
        """The plain configuration; receipts are looked up by its digest."""
        return GrpoConfig(**asdict(self.grpo))


class CountBody(_Body):
    """A text, or messages to be counted under the chat template."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"content": "def add(a, b):"}]})

    content: StrictStr | list[MessageBody]


class Completions(BaseModel):
    """Answer of `sample`."""

    completions: list[Completion]


class Scores(BaseModel):
    """Answer of `score`, in the order of `sample_ids`; of whichever measure was asked for."""

    logprobs: list[float]


class SessionList(BaseModel):
    """Answer of `sessions`."""

    sessions: list[SessionInfo]


class TokenCount(BaseModel):
    """Answer of `count`."""

    tokens: int


class Closed(BaseModel):
    """Answer of `close`, also for a session that was not open."""

    closed: str


class Health(BaseModel):
    """Answer of `health` and `ready`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"status": "ok"}]})

    status: Literal["ok", "ready"]


class ErrorBody(BaseModel):
    """Any refusal: `code` names a class of `pot_agent.errors`, `value` is what was wrong."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"code": "session_not_found", "message": "no session 'p1' is open", "value": "p1"}]
        }
    )

    code: str
    message: str
    value: Any = None


_SESSION = asdict(SessionInfo(session="p1", version=1))
EXAMPLES: dict[str, Any] = {
    "open": asdict(SessionInfo(session="p1", version=0)),
    "sample": {
        "completions": [
            asdict(
                Completion(
                    sample_id="p1-6f0c",
                    text="def add(a, b):\n    return a + b",
                    tokens=14,
                    logprob=-0.31,
                    finish_reason="stop",
                    prompt_tokens=38,
                )
            )
        ]
    },
    "score": {"logprobs": [-0.31]},
    "internalize": asdict(
        Receipt(
            digest="9f2c", version=1, parent_version=0, skipped=None, steps=3, total_steps=3, loss=0.0, loss_last=-0.2,
            kl=0.04, canary="reached", rewards={"p1-6f0c": 1.0, "p1-91ab": 0.0},
            advantages={"p1-6f0c": 1.0, "p1-91ab": -1.0},
        )
    ),
    "snapshot": _SESSION,
    "restore": _SESSION,
    "close": {"closed": "p1"},
    "sessions": {"sessions": [_SESSION]},
    "count": {"tokens": 7},
    "capabilities": asdict(
        Capabilities(
            model="SmolLM2-135M-Instruct", learns=True, logprobs=True, context_tokens=8192, device="cpu",
            parameters=134_515_008, sampler="transformers",
        )
    ),
}  # fmt: skip
"""An answer of each call, by its name."""
EXAMPLE_LINES = '{"text": {"0": "def add(a, b):"}}\n{"completions": [...]}\n'
"""An answer of `sample` that is streamed."""
