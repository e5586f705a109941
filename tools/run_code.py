"""`run_code`: a Python program in the local sandbox, for at most five seconds of CPU time."""

from pot_agent.integrations import create_run_code_tool
from pot_agent.problem import Limits

run_code = create_run_code_tool(limits=Limits(cpu_seconds=5.0, memory_mb=512, output_kb=64))
