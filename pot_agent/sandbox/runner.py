"""What runs inside the confined child: the program, on its inputs or calls, and the frames that say what happened.

Limits first: program and runner share one process, so a program can write any frame it likes. That is why frames hold
*values* and never verdicts: the judge compares, outside, with what only it knows. Frames out of order, or bytes that
are not frames, are the program's failure. Standard library only.
"""

import builtins
import io
import os
import sys
import threading
import time
from types import CodeType, ModuleType
from typing import Any

from pot_agent.sandbox import assertion, codec, operations
from pot_agent.sandbox.failure import FILE_NAME, describe, forget
from pot_agent.sandbox.reports import Reports, compile_program


def main(descriptors: list[int], channel: int) -> None:
    """Run the job in the first descriptor; never returns normally. `channel` joins a program and its assertion."""
    job_file, result, progress, *streams = descriptors
    job = codec.decode(os.pread(job_file, os.fstat(job_file).st_size, 0))
    os.close(job_file)
    reports = Reports(result, progress, job["most_bytes"])
    builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]  # `-S` leaves them out
    if job["kind"] == "stdin":
        _run_script(job, streams, reports)
        os._exit(0)
    _redirect(streams[:3])
    if job["kind"] == "assertion":
        assertion.run(job, reports, channel)
    else:
        operations.run(job, reports, channel)
    os._exit(0)


def _run_script(job: dict[str, Any], streams: list[int], reports: Reports) -> None:
    """Run the program once for each triple of streams, each time as a fresh `__main__`."""
    _redirect(streams[:3])
    code = compile_program(job["source"], reports)
    if code is None:
        return
    cpu_clock, forks = time.process_time, range(len(streams) // 3)
    for test in forks:
        _redirect(streams[3 * test : 3 * test + 3])
        reports.begin(test)
        before = cpu_clock()
        status, error, reusable = _run_once(code, job["source"])
        reports.frame("end", test, status, error, cpu_clock() - before)
        if status != 0 or not reusable:
            os._exit(status)


def _redirect(triple: list[int]) -> None:
    """Put fresh files on descriptors 0, 1 and 2, and fresh text streams over them."""
    for target, descriptor in enumerate(triple):
        os.dup2(descriptor, target)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stdout = sys.__stdout__ = _text_output(1, "surrogateescape")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _text_output(2, "backslashreplace")  # type: ignore[misc]


def _text_output(descriptor: int, errors: str) -> io.TextIOWrapper:
    raw = io.FileIO(descriptor, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding="utf-8", errors=errors, newline="\n", line_buffering=descriptor == 2
    )


def _run_once(code: CodeType, source: str) -> tuple[int, dict[str, Any] | None, bool]:
    """Run as `__main__`: exit status, what went wrong, and whether the process is fit for another test."""
    main_module = ModuleType("__main__")
    main_module.__dict__.update(__builtins__=builtins, __file__=FILE_NAME)
    sys.modules["__main__"] = main_module
    sys.argv = [FILE_NAME]
    status, error, reusable = 0, None, False
    try:
        try:
            exec(code, main_module.__dict__)
        finally:
            reusable = _join_threads()
            _run_exit_handlers()
    except SystemExit as leave:
        status = _exit_status(leave)
        error = describe(leave, source) if status else None
    except BaseException as failure:
        status, error = 1, describe(failure, source)
        _show(failure)
        forget(failure, main_module.__dict__)
    main_module.__dict__.clear()  # destructors may print, as at the end of any script
    flushed = _flush()
    return status or flushed, error, reusable


def _join_threads() -> bool:
    """Wait for threads as an interpreter does at its end; False where any had been started and were still there."""
    if len(sys._current_frames()) == 1:
        return True
    threading._shutdown()  # type: ignore[attr-defined]
    return False


def _run_exit_handlers() -> None:
    atexit = sys.modules.get("atexit")
    if atexit is not None:
        atexit._run_exitfuncs()


def _exit_status(leave: SystemExit) -> int:
    code = leave.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    try:
        sys.stderr.write(f"{code}\n")
    except Exception:
        return 1
    return 1


def _show(failure: BaseException) -> None:
    """Print a traceback on standard error, without the frames of this file."""
    trace = failure.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != FILE_NAME:
        trace = trace.tb_next
    try:
        sys.excepthook(type(failure), failure.with_traceback(trace), trace)
    except BaseException:
        return


def _flush() -> int:
    """0, or 120 as the interpreter has it where the streams could not be flushed."""
    status = 0
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BaseException:
            status = 120
    return status
