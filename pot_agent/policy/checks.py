"""Arguments of a policy's calls, checked at the door: bad ones are an error before anything is lost."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pot_agent.errors import ConfigError, SampleError
from pot_agent.policy.base import Measure
from pot_agent.require import require_choice

ROLES = ("system", "user", "assistant")
MAX_SESSION_CHARACTERS = 200
MAX_COMPLETIONS = 1024
MAX_SCORED = 1024
MIN_TEMPERATURE = 1e-6
"""Below it, sampling differs from greedy decoding in nothing but overflow."""


def check_session_name(session: Any) -> None:
    """A printable name of 1 to 200 characters."""
    if (
        not isinstance(session, str)
        or not session
        or len(session) > MAX_SESSION_CHARACTERS
        or not session.isprintable()
    ):
        raise ConfigError(
            f"a session's name is 1 to {MAX_SESSION_CHARACTERS} printable characters, got {_short(session)}",
            value=session,
        )


def check_seed(seed: Any) -> None:
    """Any whole number."""
    if not _is_whole(seed):
        raise ConfigError(f"seed must be a whole number, got {_short(seed)}", value=seed)


def check_version(version: Any) -> None:
    """A whole number, 0 or more."""
    if not _is_whole(version) or version < 0:
        raise ConfigError(f"version must be a whole number, 0 or more, got {_short(version)}", value=version)


def check_messages(messages: Any) -> None:
    """At least one message, each with a known role and text."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence) or not messages:
        raise ConfigError(
            f'messages must be a list such as [{{"role": "user", "content": "..."}}], got {_short(messages)}',
            value=messages,
        )
    for at, message in enumerate(messages):
        if not isinstance(message, Mapping) or message.get("role") not in ROLES:
            raise ConfigError(
                f"message {at} needs a role, one of {', '.join(ROLES)}, got {_short(message)}", value=message
            )
        if not isinstance(message.get("content"), str):
            raise ConfigError(f"message {at} needs content, as text, got {_short(message)}", value=message)


def check_sampling(n: Any, temperature: Any, max_tokens: Any, stop: Any) -> None:
    """The arguments of `sample` that say how."""
    if not _is_whole(n) or not 1 <= n <= MAX_COMPLETIONS:
        raise ConfigError(f"n must be a whole number from 1 to {MAX_COMPLETIONS}, got {_short(n)}", value=n)
    check_temperature(temperature)
    if not _is_whole(max_tokens) or max_tokens < 1:
        raise ConfigError(f"max_tokens must be a whole number, 1 or more, got {_short(max_tokens)}", value=max_tokens)
    listed = isinstance(stop, Sequence) and not isinstance(stop, (str, bytes))
    if not listed or not all(isinstance(item, str) and item for item in stop):
        raise ConfigError(f"stop must be a list of texts that are not empty, got {_short(stop)}", value=stop)


def check_temperature(temperature: Any, *, allow_zero: bool = True) -> None:
    """A finite number, not so small that logits divided by it overflow; 0 is greedy, where that makes sense."""
    number = isinstance(temperature, (int, float)) and not isinstance(temperature, bool) and math.isfinite(temperature)
    if not number or temperature < 0 or (temperature == 0 and not allow_zero):
        rule = "0 or more (0 is greedy)" if allow_zero else "above 0"
        raise ConfigError(f"temperature must be a finite number {rule}, got {_short(temperature)}", value=temperature)
    if 0 < temperature < MIN_TEMPERATURE:
        raise ConfigError(
            f"temperature must be at least {MIN_TEMPERATURE:g} where it is not 0, got {temperature!r}; 0 is greedy",
            value=temperature,
        )


def check_sample_ids(sample_ids: Any) -> None:
    """A list of at most 1,024 ids: scoring holds the policy for as long as it takes."""
    listed = isinstance(sample_ids, Sequence) and not isinstance(sample_ids, (str, bytes))
    if not listed or not all(isinstance(item, str) for item in sample_ids):
        raise ConfigError(f"sample_ids must be a list of sample ids, got {_short(sample_ids)}", value=sample_ids)
    if len(sample_ids) > MAX_SCORED:
        raise ConfigError(
            f"sample_ids must be at most {MAX_SCORED:,}, got {len(sample_ids):,}; score them in parts",
            value=len(sample_ids),
        )


def check_rewards(rewards: Any) -> None:
    """A finite number for each of at least one sample id."""
    if not isinstance(rewards, Mapping) or not rewards:
        raise SampleError(f"rewards must map sample ids to numbers, got {_short(rewards)}", value=rewards)
    for sample_id, reward in rewards.items():
        number = isinstance(reward, (int, float)) and not isinstance(reward, bool)
        if not isinstance(sample_id, str) or not number or not math.isfinite(reward):
            raise SampleError(
                f"the reward of sample {_short(sample_id)} must be a finite number, got {_short(reward)}", value=reward
            )


def check_measure(measure: Any) -> None:
    """One of those that `score` knows."""
    require_choice("measure", measure, get_args(Measure))


def check_teachers(teachers: Any, rewards: Mapping[str, float]) -> None:
    """Messages for some of the samples that have a reward, or None."""
    if teachers is None:
        return
    if not isinstance(teachers, Mapping):
        raise ConfigError(f"teachers must map sample ids to messages, got {_short(teachers)}", value=teachers)
    unknown = [sample_id for sample_id in teachers if sample_id not in rewards]
    if unknown:
        raise SampleError(
            f"teachers name {len(unknown)} samples that have no reward, {_short(unknown[0])} for one; give each of "
            "them a reward, or leave it out",
            value=unknown,
        )
    for messages in teachers.values():
        check_messages(messages)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _short(value: Any, most: int = 120) -> str:
    text = repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."
