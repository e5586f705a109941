"""The server's own description of itself: its examples work, its answers fit it, and what fits it never fails.

The fuzzing is schemathesis's, from `/openapi.json`. Numbers that only cost time (tokens, completions, epochs) are cut,
and half of the calls are aimed at a session, a version and samples that are there: else most would end at the door.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from pot_agent.policy.local import LocalPolicy
from tests.policy.serving import ASK, serving

SESSION = "p1"
"""The name in the examples."""
EXTREMES = [0, -1, 1e-300, 1e-38, 1e300, 2**63]
RUINOUS = ("learning_rate", 2**63)
"""Allowed, and no sound weights come of it: a test of its own."""
NUMBERS = {"open": "LoraConfig", "sample": "SampleBody", "score": "ScoreBody", "internalize": "GrpoConfig"}
"""Where the numbers of a call are described."""
MOST = {"n": 3, "max_tokens": 4, "epochs": 2}
OPEN = {"lora": {"rank": 1, "alpha": 1.0}}
SAMPLE = {"version": 0, "messages": ASK, "n": 2, "max_tokens": 2, "temperature": 1.0}
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
FUZZED = ("open", "sample", "score", "internalize", "snapshot", "restore", "close", "count", "sessions", "capabilities")
ALL = {"health", "ready", "metrics", *FUZZED}


@pytest.fixture(scope="module")
def url(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    policy = LocalPolicy(str(tiny), threads=1, state_dir=tmp_path_factory.mktemp("schema"), max_sessions=16)
    with serving(policy) as url:
        yield url


@pytest.fixture(scope="module")
def described(url: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{url}/openapi.json").json()
    return found


def operations(described: dict[str, Any]) -> dict[str, tuple[str, str, dict[str, Any]]]:
    """Method, path and description of each operation, by its id."""
    return {
        operation["operationId"]: (method.upper(), path, operation)
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    }


def body_examples(described: dict[str, Any], operation: dict[str, Any]) -> list[Any]:
    """The examples of what is sent; `[None]` where nothing is."""
    if "requestBody" not in operation:
        return [None]
    reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    examples: list[Any] = described["components"]["schemas"][reference.rsplit("/", 1)[-1]]["examples"]
    return examples


def test_every_operation_has_an_id_a_tag_and_words(described: dict[str, Any]) -> None:
    found = operations(described)
    assert set(found) == ALL
    for _, _, operation in found.values():
        assert operation["tags"]
        assert operation["description"]


def test_every_body_and_every_answer_has_an_example(described: dict[str, Any]) -> None:
    for method, path, operation in operations(described).values():
        assert body_examples(described, operation), f"{method} {path} takes a body without an example"
        for status, answer in operation["responses"].items():
            for content in answer["content"].values():
                reference = content.get("schema", {}).get("$ref", "").rsplit("/", 1)[-1]
                of_schema = described["components"]["schemas"].get(reference, {}).get("examples")
                assert "example" in content or of_schema, f"{method} {path} answers {status} without an example"


def test_every_example_is_accepted_and_answered_in_the_shape_of_the_example(
    url: str, described: dict[str, Any]
) -> None:
    found = operations(described)
    names: dict[str, str] = {}
    order = ["open", "sample", "internalize", "score", "snapshot", "restore", "sessions", "close"]
    for call in [*order, *sorted(set(found) - set(order))]:
        method, path, operation = found[call]
        for index, example in enumerate(body_examples(described, operation)):
            name = SESSION if index == 0 else f"{SESSION}-{index}"
            body = renamed(example, names)
            answer = httpx.request(method, url + path.replace("{session}", name), json=body, timeout=60)
            assert answer.status_code == 200, f"{call}: {answer.text}"
            content, *_ = operation["responses"]["200"]["content"].values()
            if "example" in content and call != "metrics":
                assert_alike(answer.json(), content["example"])
            if call == "sample":
                drawn = [completion["sample_id"] for completion in answer.json()["completions"]]
                names = dict(zip(["p1-6f0c", "p1-91ab"], drawn, strict=False))


def renamed(example: Any, names: dict[str, str]) -> Any:
    """The example with real sample ids for those that it shows."""
    if isinstance(example, dict):
        return {names.get(key, key): renamed(value, names) for key, value in example.items()}
    if isinstance(example, list):
        return [renamed(value, names) for value in example]
    return names.get(example, example) if isinstance(example, str) else example


def assert_alike(answer: Any, example: Any) -> None:
    """What the example has, the answer has, all the way down; lists by their first item. Keys that are ids differ."""
    if isinstance(example, dict) and isinstance(answer, dict):
        for key in [key for key in example if not key.startswith(f"{SESSION}-")]:
            assert_alike(answer[key], example[key])
    elif isinstance(example, list):
        assert isinstance(answer, list)
        assert_alike(answer[0], example[0])
    elif example is not None and answer is not None:
        numbers = (int, float)
        assert isinstance(answer, type(example)) or (isinstance(answer, numbers) and isinstance(example, numbers))


class Aim:
    """Makes calls that end in the policy and not at the door: to a session that is there, on samples of it."""

    def __init__(self, url: str) -> None:
        self._session = f"{url}/v1/sessions/{SESSION}"
        self._ids: list[str] = []

    def again(self) -> None:
        """The session is open at version 0, and has been sampled."""
        opened = httpx.post(f"{self._session}/open", json=OPEN)
        if opened.status_code != 200 or opened.json()["version"] > 0 or not self._known():
            httpx.post(f"{self._session}/close").raise_for_status()
            httpx.post(f"{self._session}/open", json=OPEN).raise_for_status()
            drawn = httpx.post(f"{self._session}/sample", json=SAMPLE, timeout=60).json()["completions"]
            self._ids = [completion["sample_id"] for completion in drawn]

    def _known(self) -> bool:
        asked = {"version": 0, "sample_ids": self._ids}
        return bool(self._ids) and httpx.post(f"{self._session}/score", json=asked).status_code == 200

    def improve(self, body: dict[str, Any], data: st.DataObject) -> None:
        """Put right what would be refused at the first look, and with it all that is checked later."""
        if "version" in body:
            body["version"] = data.draw(st.sampled_from([0, 0, 0, 1]))
        if "messages" in body:
            body |= {"messages": ASK, "max_tokens": data.draw(st.integers(1, 4)), "stop": []}
        if isinstance(body.get("rewards"), dict):
            body["rewards"] = dict(zip(self._ids, [1.0, 0.0], strict=False))
        if isinstance(body.get("sample_ids"), list):
            body["sample_ids"] = data.draw(st.lists(st.sampled_from([*self._ids, "unknown"]), max_size=3))


def make_cheap(body: Any) -> None:
    """Cut the numbers that only cost time."""
    for name, value in body.items() if isinstance(body, dict) else ():
        if name in MOST and isinstance(value, int) and not isinstance(value, bool):
            body[name] = min(value, MOST[name])
        make_cheap(value)


def fuzz(url: str, described: dict[str, Any], call: str, data: st.DataObject) -> None:
    """One call as the description allows it or, where there is a body, at times as it does not."""
    method, path, about = operations(described)[call]
    operation = schemathesis.openapi.from_dict(described)[path][method]
    sound = "requestBody" not in about or data.draw(st.integers(0, 3)) > 0
    mode = GenerationMode.POSITIVE if sound else GenerationMode.NEGATIVE
    case = data.draw(operation.as_strategy(generation_mode=mode))
    make_cheap(case.body)
    if "{session}" in path and data.draw(st.booleans()):
        aim = Aim(url)
        aim.again()
        case.path_parameters["session"] = SESSION
        if sound and isinstance(case.body, dict):
            aim.improve(case.body, data)
    case.call_and_validate(base_url=url, timeout=60, checks=CHECKS)
    if call in ("open", "restore"):
        httpx.post(url + path.format(session=case.path_parameters["session"]).rpartition("/")[0] + "/close")


@pytest.mark.parametrize("call", FUZZED)
@settings(max_examples=15, database=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_the_description_allows_never_fails_unexpectedly(
    url: str, described: dict[str, Any], call: str, data: st.DataObject
) -> None:
    fuzz(url, described, call, data)


def spoilt(url: str, call: str, number: dict[str, Any]) -> Iterator[httpx.Response]:
    """Calls up to an update, that one with this number. How good the update was is not asked."""
    session = f"{url}/v1/sessions/extreme"
    own = {name: number if name == call else {} for name in NUMBERS}
    httpx.post(f"{session}/close").raise_for_status()
    yield httpx.post(f"{session}/open", json={"lora": OPEN["lora"] | own["open"]})
    drawn = httpx.post(f"{session}/sample", json=SAMPLE | own["sample"], timeout=60)
    yield drawn
    ids = [completion["sample_id"] for completion in drawn.json()["completions"]]
    yield httpx.post(f"{session}/score", json={"version": 0, "sample_ids": ids} | own["score"], timeout=60)
    training = {"epochs": 1, "loss_normalisation": "constant"} | own["internalize"]
    rewards = {sample_id: float(index == 0) for index, sample_id in enumerate(ids)}
    update = {"version": 0, "rewards": rewards, "grpo": training}
    yield httpx.post(f"{session}/internalize", json=update, timeout=60)


@pytest.mark.parametrize("call", NUMBERS)
def test_a_number_at_its_extreme_is_refused_or_used_and_never_fails(
    url: str, described: dict[str, Any], call: str
) -> None:
    numbers = described["components"]["schemas"][NUMBERS[call]]["properties"]
    names = [name for name, about in numbers.items() if "number" in str(about) or "integer" in str(about)]
    assert names
    for name, value in product(names, EXTREMES):
        if (name, value) == RUINOUS:
            continue
        number = {name: [value, 0.9] if name == "adam_betas" else value}
        make_cheap(number)
        for answer in spoilt(url, call, number):
            assert answer.status_code < 500, f"{number}: {answer.text}"
            assert '"$float"' not in answer.text, f"{number}: {answer.text}"
            if answer.status_code != 200:
                break


def test_an_update_that_ruins_the_adapter_is_skipped(url: str) -> None:
    *_, updated = spoilt(url, "internalize", dict([RUINOUS]))
    assert (updated.status_code, "not finite" in updated.text) == (200, True)


@pytest.mark.long
@pytest.mark.parametrize("call", FUZZED)
@settings(max_examples=200, derandomize=False, database=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_nor_with_many_more_examples(url: str, described: dict[str, Any], call: str, data: st.DataObject) -> None:
    fuzz(url, described, call, data)
