"""PoT with one adapter that goes on from problem to problem: the paper's ablation of the transient adapter.

The graph is PoT's own. Its policy is given through `OneAdapter`, which lets every run work in one session: a run begins
at the version, the moments and the reference where the one before ended. The session's name is made of the
configuration, so that each problem's own graph finds it again, also behind HTTP; `end` closes it.

Limits: problems run one after another, in an order that matters and is to be reported; arms of equal configuration
would share the adapter. The session ends by its lease (POT_LEASE_SECONDS without a call), and begins again at the base
where its process ended without a state folder. A problem that fails leaves the updates that it made. The session holds
every sample of all problems (POT_MAX_SAMPLES).
"""

import hashlib
import json
from typing import Any

from pot_agent.config import LoraConfig, PotConfig
from pot_agent.methods.base import Method
from pot_agent.methods.parts.passing import PassingPolicy
from pot_agent.policy.base import Completion, Policy, Receipt, SessionInfo
from pot_agent.sandbox.base import Sandbox


class OneAdapter(PassingPolicy):
    """A policy in which all sessions are one, which `close` leaves open."""

    def __init__(self, inner: Policy, session: str, lora: LoraConfig) -> None:
        super().__init__(inner)
        self._session = session
        self._lora = lora

    def open(self, session: str, *, lora: LoraConfig | None = None, seed: int = 0) -> SessionInfo:
        """The one session, at the version where it is; with its adapter also for a run that cannot learn."""
        opened = self.inner.open(self._session, lora=self._lora, seed=seed)
        return SessionInfo(session=session, version=opened.version)

    def sample(self, session: str, **asked: Any) -> list[Completion]:
        """Sample from the one session."""
        return self.inner.sample(self._session, **asked)

    def score(self, session: str, **asked: Any) -> list[float]:
        """Score samples of the one session."""
        return self.inner.score(self._session, **asked)

    def internalize(self, session: str, **asked: Any) -> Receipt:
        """Train the one adapter."""
        return self.inner.internalize(self._session, **asked)

    def snapshot(self, session: str) -> SessionInfo:
        """Keep the one adapter's newest version."""
        return SessionInfo(session=session, version=self.inner.snapshot(self._session).version)

    def restore(self, session: str, *, version: int | None = None) -> SessionInfo:
        """Where the one session is, or take it back."""
        return SessionInfo(session=session, version=self.inner.restore(self._session, version=version).version)

    def close(self, session: str) -> None:
        """The adapter goes on."""


def session_of(config: PotConfig) -> str:
    """The name of the session that runs of this configuration share."""
    digest = hashlib.sha256(json.dumps(config.to_dict(), sort_keys=True).encode()).hexdigest()
    return f"pot-persistent-{digest[:16]}"


def build(policy: Policy, sandbox: Sandbox, config: PotConfig) -> Any:
    """The graph of one problem, or of many."""
    from pot_agent.graph import create_pot_agent

    shared = OneAdapter(policy, session_of(config), config.lora)
    return create_pot_agent(shared, sandbox, config=config, name="persistent")


def end(policy: Policy, config: PotConfig) -> None:
    """Drop the adapter."""
    policy.close(session_of(config))


METHOD = Method(
    name="persistent",
    summary="PoT whose one adapter goes on from problem to problem",
    build=build,
    learns=True,
    persistent=True,
    ignores=frozenset({"learn", "snapshots"}),
    end=end,
)
