"""Ways in which a record's line can be damaged, by name; each gives a line that is none."""

import json
from collections.abc import Callable
from typing import Any


def changed(**changes: Any) -> Callable[[bytes], bytes]:
    return lambda line: json.dumps({**json.loads(line), **changes}).encode()


def without(name: str) -> Callable[[bytes], bytes]:
    return lambda line: json.dumps({key: value for key, value in json.loads(line).items() if key != name}).encode()


def spent(**changes: Any) -> Callable[[bytes], bytes]:
    return lambda line: changed(ledger={**json.loads(line)["ledger"], **changes})(line)


def step(**changes: Any) -> Callable[[bytes], bytes]:
    plain: dict[str, Any] = {"iteration": 1, "rewards": [0.5], "skipped": None, "version": 0, "loss": None, "kl": None}
    plain |= {"grad_norm": None, "adapter_norm": None, "seconds": 1.0, "tokens": 1}
    return changed(curve=[{**plain, **changes}])


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "no JSON": lambda line: line[:-3],
    "not an object": lambda line: b"[" + line + b"]",
    "nested deeply": lambda line: b'{"problem": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "a list as problem": changed(problem=["p/0"]),
    "a dict as method": changed(method={"pot": 1}),
    "a fraction as seed": changed(seed=0.5),
    "no error": without("error"),
    "no ledger": without("ledger"),
    "words for truth": changed(correct="perhaps"),
    "version true": changed(record_version=True),
    "version 2": changed(record_version=2),
    "fewer passed than none": changed(hidden_passed=-1, correct=False),
    "more passed than there are": changed(hidden_passed=99, correct=False),
    "more visible ones passed than there are": changed(visible_passed=99),
    "correct by no hidden test": changed(correct=True, hidden_passed=0, hidden_total=0),
    "correct with a hidden test failed": changed(correct=True, hidden_passed=1, hidden_total=2),
    "solved with a visible test failed": changed(visible_solved=True, visible_passed=0),
    "more tokens than numbers go": spent(completion_tokens=10**400),
    "more FLOPs than there are": spent(flops={"total": 1e300}),
    "rewards without bounds": step(rewards=[1e308, 1e308]),
    "an iteration that nobody reaches": step(iteration=10**7),
}
