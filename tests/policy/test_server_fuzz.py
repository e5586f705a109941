"""Whatever a body holds, the server refuses it by name or does it; it never fails unexpectedly."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pot_agent.policy.client import HttpPolicy
from tests.policy.serving import ASK

JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
SMALL = st.integers(-1, 3)
FLOAT = st.floats(-1, 3) | st.sampled_from([{"$float": "nan"}, {"$float": "-inf"}])
LORA = st.fixed_dictionaries(
    {}, optional={"rank": SMALL, "alpha": FLOAT, "dropout": FLOAT, "targets": st.text(max_size=4)}
)
GRPO = st.fixed_dictionaries(
    {}, optional={"epochs": SMALL, "clip": FLOAT, "kl": st.sampled_from(["k1", "k9"]), "adam_betas": st.lists(FLOAT)}
)
FIELDS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "open": {"lora": st.none() | LORA, "seed": st.integers()},
    "sample": {
        "version": SMALL,
        "messages": st.just(ASK) | st.just([{"role": "user", "content": "lone \ud800 surrogate"}]),
        "n": SMALL,
        "temperature": FLOAT,
        "max_tokens": SMALL,
        "seed": st.integers(),
        "stop": st.lists(st.text(max_size=3), max_size=2),
    },
    "score": {"version": SMALL, "sample_ids": st.lists(st.text(max_size=4), max_size=2), "temperature": FLOAT},
    "internalize": {"version": SMALL, "rewards": st.dictionaries(st.text(max_size=4), FLOAT, max_size=3), "grpo": GRPO},
}


@pytest.mark.parametrize("call", FIELDS)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(data=st.data())
def test_no_body_makes_the_server_fail(call: str, http: HttpPolicy, data: st.DataObject) -> None:
    url = http.url
    sound = {name: data.draw(values) for name, values in FIELDS[call].items()}
    spoiled = data.draw(st.dictionaries(st.sampled_from([*FIELDS[call], "unknown"]), JUNK, max_size=2))
    httpx.post(f"{url}/v1/sessions/fuzz/open", json={"lora": {"rank": 1, "alpha": 1.0}})
    name = "fuzz-opened" if call == "open" else "fuzz"
    body = json.dumps({**sound, **spoiled})  # Infinity and lone surrogates included, which JSON does not know
    headers = {"Content-Type": "application/json"}
    answer = httpx.post(f"{url}/v1/sessions/{name}/{call}", content=body, headers=headers)
    assert answer.status_code < 500, answer.text
    assert answer.status_code == 200 or {"code", "message", "value"} == set(answer.json())
    if call == "open":
        httpx.post(f"{url}/v1/sessions/{name}/close")
