"""`run_tests`: a Python file's own tests in the local sandbox, each for at most five seconds of CPU time."""

from pot_agent.integrations import create_run_tests_tool
from pot_agent.problem import Limits

run_tests = create_run_tests_tool(limits=Limits(cpu_seconds=5.0, memory_mb=512, output_kb=64))
