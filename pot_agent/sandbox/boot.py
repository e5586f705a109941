"""The first code of a zygote: a fresh interpreter with `-S`, no environment and no site-packages.

The package is made importable without its `__init__` (which offers more than a zygote may load); once everything is
loaded its names are taken out of `sys.modules` again, so that no program finds them.
"""

import os
import resource
import sys
from types import ModuleType


def _room_for_the_stack() -> None:
    """The kernel lays out memory by the stack limit at exec: raise it and start again, once."""
    wanted = 512 << 20
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != wanted:
        resource.setrlimit(resource.RLIMIT_STACK, (wanted, hard))
        os.execve(sys.executable, sys.orig_argv, dict(os.environ))


def _package(name: str, path: str) -> None:
    module = ModuleType(name)
    module.__path__ = [path]
    sys.modules[name] = module


if __name__ == "__main__":
    _room_for_the_stack()
    here = os.path.dirname(os.path.abspath(__file__))
    _package("pot_agent", os.path.dirname(here))
    _package("pot_agent.sandbox", here)
    from pot_agent.sandbox import zygote

    for loaded in [name for name in sys.modules if name.split(".")[0] == "pot_agent"]:
        del sys.modules[loaded]
    zygote.main(sys.argv[1:])
