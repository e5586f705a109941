"""The runner that is uploaded to another machine: one job in, one outcome out, by the local sandbox of that machine.

Limits first: where that machine's kernel gives no tier, programs run there under resource limits alone; the outcome
says so, and whoever asked is to give each program a machine of its own. Standard library only.

    python3 remote.py JOB OUTCOME
"""

import os
import sys

from pot_agent.errors import SandboxUnavailableError
from pot_agent.sandbox.local import LocalSandbox
from pot_agent.sandbox.parcel import pack_outcome, unpack_job


def main(job_file: str, outcome_file: str) -> None:
    """Run the job; the outcome appears whole or not at all."""
    if os.path.exists(outcome_file):
        os.unlink(outcome_file)
    with open(job_file, "rb") as file:
        job = unpack_job(file.read())
    with _strongest() as sandbox:
        data = pack_outcome(sandbox.execute(job), sandbox.tier)
    with open(f"{outcome_file}.part", "wb") as file:
        file.write(data)
    os.replace(f"{outcome_file}.part", outcome_file)


def _strongest() -> LocalSandbox:
    sandbox = LocalSandbox(workers=1)
    try:
        sandbox.probe()
        return sandbox
    except SandboxUnavailableError:
        sandbox.close()
        return LocalSandbox(workers=1, unsafe=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
