"""Continuous batching for the transformers sampler: requests of several sessions, each under its own adapter.

A step reads the base's weights once for all rows; each request's rows get their own adapter's part and attend to their
own prompt. A request joins when it comes and leaves when it is done. The batch holds the policy's turn while it steps,
and gives it to whoever waits (an update, mostly) after `SHARE_SECONDS`: its keys and values stay, so pausing costs
nothing, and what comes meanwhile makes the next batch wider.

Limits: models of the lean decoder alone. A request alone is computed exactly as without this; beside others its sums
are formed in another order, so that equal seeds give equal samples only to rounding. A prompt runs alone, and the
others wait for it.
"""

import atexit
import threading
import time
import weakref
from collections import deque
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pot_agent.errors import PolicyUnavailableError
from pot_agent.policy.adapters import AdapterLayout
from pot_agent.policy.memory import give_back_free_memory
from pot_agent.policy.sampler import Drawn, JoinedDrawing, Request, Sampler
from pot_agent.policy.turns import LOOK_SECONDS, Turns

SHARE_SECONDS = 1.0
"""As long as the batch goes on although somebody waits."""
IDLE_SECONDS = 5.0
"""The thread ends when there was nothing to do for so long."""
MOST_ROWS = 64
"""Rows in one batch; requests beyond it wait, in order."""


_all: "weakref.WeakSet[Batcher]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """An interpreter that ends stops its daemon threads wherever they are, and torch's code does not survive that."""
    for batcher in list(_all):
        batcher.close()


@dataclass(eq=False)
class _Job:
    """One request on its way."""

    request: Request
    layout: AdapterLayout | None
    vector: Tensor | None
    drawing: JoinedDrawing | None = None
    error: BaseException | None = None
    left: bool = False
    """Whether its caller has gone."""
    done: threading.Event = field(default_factory=threading.Event)


class Batcher:
    """Draws requests together. Thread-safe; callers wait in `draw`, one thread of its own does the work."""

    def __init__(self, sampler: Sampler, turns: Turns, *, most_rows: int = MOST_ROWS) -> None:
        self._sampler = sampler
        self._turns = turns
        self._most_rows = most_rows
        self._waiting: deque[_Job] = deque()
        self._active: list[_Job] = []
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        _all.add(self)

    def draw(self, request: Request, layout: AdapterLayout | None, vector: Tensor | None) -> list[Drawn]:
        """Draw `request.n` completions of one prompt from a version; from the base where either is None."""
        job = _Job(request, layout, vector)
        with self._news:
            if self._closed:
                raise PolicyUnavailableError("this policy was shut down; build another one", value=None)
            self._waiting.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="pot-batch", daemon=True)
                self._thread.start()
            self._news.notify()
        try:
            while not job.done.wait(LOOK_SECONDS):
                request.check()  # the batch looks too, but may be waiting for its turn
        except BaseException:
            job.left = True
            raise
        if job.error is not None:
            raise job.error
        return job.drawing.rows if job.drawing is not None else []

    def close(self) -> None:
        """Take nothing more, and end what is there. Idempotent."""
        with self._news:
            self._closed = True
            thread = self._thread
            self._news.notify()
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        while self._wait():
            with self._turns.taken(), torch.no_grad(), self._sampler.together():
                self._share()
            give_back_free_memory()

    def _wait(self) -> bool:
        """Wait for something to do; False where the thread is to end."""
        with self._news:
            if not (self._waiting or self._active or self._closed):
                self._news.wait(IDLE_SECONDS)
            if self._closed:
                self._end(
                    [*self._active, *self._waiting], PolicyUnavailableError("this policy was shut down", value=None)
                )
            if self._waiting or self._active:
                return True
            self._thread = None
            return False

    def _share(self) -> None:
        """Step until there is nothing more, or somebody else has waited for long enough."""
        began = time.monotonic()
        while not self._closed:
            self._admit()
            if not self._active:
                return
            self._step()
            if len(self._turns) > 1 and time.monotonic() - began > SHARE_SECONDS:
                return

    def _admit(self) -> None:
        """Let in who waits, as far as there is room."""
        while True:
            with self._news:
                rows = sum(job.request.n for job in self._active)
                if not self._waiting or (self._active and rows + self._waiting[0].request.n > self._most_rows):
                    return
                job = self._waiting.popleft()
            try:
                self._check(job)
                job.drawing = self._sampler.drawing(job.request, job.layout, job.vector)
                job.drawing.begin()
                self._active.append(job)
            except BaseException as error:
                self._end([job], error)

    def _step(self) -> None:
        for job in list(self._active):
            try:
                self._check(job)
            except BaseException as error:
                self._end([job], error)
        try:
            drawings = [job.drawing for job in self._active if job.drawing is not None]
            if drawings:
                self._take(drawings, self._sampler.logits(drawings))
        except BaseException as error:  # of a step that all of them share
            self._end(list(self._active), error)

    def _take(self, drawings: list[JoinedDrawing], logits: list[Tensor]) -> None:
        going: list[JoinedDrawing] = []
        ids: list[Tensor] = []
        for job, drawing, logits_NV in zip(list(self._active), drawings, logits, strict=True):
            try:
                ids_N = drawing.choose(logits_NV)
            except BaseException as error:
                self._end([job], error)
                continue
            if ids_N is None:
                self._end([job], None)
            else:
                going.append(drawing)
                ids.append(ids_N)
        if going:
            self._sampler.step(going, ids)

    def _check(self, job: _Job) -> None:
        if job.left:
            raise PolicyUnavailableError("its caller has gone", value=None)  # which nobody reads
        job.request.check()

    def _end(self, jobs: list[_Job], error: BaseException | None) -> None:
        for job in jobs:
            job.error = error
            if job in self._active:
                self._active.remove(job)
            if job in self._waiting:
                self._waiting.remove(job)
            job.done.set()
