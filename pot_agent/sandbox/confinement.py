"""What every forked child puts on before it runs a program, by tier. Runs in the zygote; standard library only.

Limits first: `unsafe` is resource limits alone. Nothing here falls back: what cannot be had is an `OSError`.
"""

import os
import resource
import sys
import threading
from collections.abc import Sequence

from pot_agent.sandbox import family, kernel, landlock, limits, namespaces, readable, roots, seccomp
from pot_agent.sandbox.tiers import Tier, has_landlock, has_namespaces
from pot_agent.sandbox.wire import MAX_THREADS, Request


class Confinement:
    """Made once in the zygote, which it confines too; put on in each child."""

    def __init__(
        self, tier: Tier, *, processes: bool, site_packages: Sequence[str], packages: Sequence[str], control: int
    ) -> None:
        self.tier, self.processes, self.machine = tier, processes, kernel.machine()
        self.ruleset, self.scratch = -1, -1
        self.proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        """A descriptor of the /proc in which the children are found."""
        found = readable.find(site_packages, packages, processes=processes)
        folder = roots.scratch_folder(found) if has_namespaces(tier) else None
        if folder is not None:
            self._enter_namespaces(found, folder, control)
        kernel.set_undumpable()
        if not kernel.set_thread_stack(limits.THREAD_STACK_BYTES):
            threading.stack_size(limits.THREAD_STACK_BYTES)
        if tier == "unsafe":
            return
        kernel.set_no_new_privileges()
        kernel.drop_capabilities()
        if has_landlock(tier):
            self.ruleset = landlock.build(found, scratch=folder)
        if processes:
            family.check()
            sys.executable = readable.interpreter()
        kernel.install_filter(seccomp.zygote_filter(self.machine, scratch=folder is not None, processes=processes))

    def _enter_namespaces(self, found: readable.Readable, folder: str, control: int) -> None:
        os.close(self.proc)
        self.proc = namespaces.enter(found, whole_folders=has_landlock(self.tier), scratch=folder, keep=control)
        self.scratch = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._clean = self._traces()

    def put_on(self, request: Request, descriptors: Sequence[int]) -> None:
        """Confine the calling process, for good; raises `OSError` where any part fails."""
        limits.apply(
            cpu_seconds=request.cpu_total,
            memory_bytes=request.memory,
            file_bytes=request.output,
            descriptors=max(descriptors) + limits.SPARE_DESCRIPTORS,
        )
        if self.processes:
            limits.lower(resource.RLIMIT_NPROC, MAX_THREADS + family.OVERHEAD)
            kernel.drop_capabilities()  # those that its own user namespace gave it
        if self.ruleset >= 0:
            landlock.restrict(self.ruleset)
            os.close(self.ruleset)
        if self.tier != "unsafe":
            kernel.install_filter(self._filter())

    def _filter(self) -> list[seccomp.Instruction]:
        if self.processes:
            return seccomp.family_filter(self.machine)
        return seccomp.program_filter(self.machine, os.getpid())

    @property
    def used(self) -> bool:
        """Whether a program has left, or only once made, anything in the scratch folder: the next needs a new one."""
        return self.scratch >= 0 and self._traces() != self._clean

    def _traces(self) -> tuple[int, ...]:
        """Changed by whatever changes the folder: the time of change cannot be set by anybody."""
        folder, system = os.fstat(self.scratch), os.fstatvfs(self.scratch)
        return folder.st_ctime_ns, folder.st_mtime_ns, folder.st_mode, folder.st_nlink, system.f_bfree, system.f_ffree
