"""Runs programs nobody trusts: judge outside, program inside. Imports neither torch nor langgraph."""

from pot_agent.sandbox.base import Isolation, Judgement, RunResult, Sandbox, TestResult, Verdict
from pot_agent.sandbox.e2b import E2BSandbox
from pot_agent.sandbox.local import LocalSandbox

__all__ = ["E2BSandbox", "Isolation", "Judgement", "LocalSandbox", "RunResult", "Sandbox", "TestResult", "Verdict"]
