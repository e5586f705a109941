"""A judge's checker in C++, compiled here and run only in the sandbox.

The source becomes a shared library, which travels inside a Python checker (`StdinTest.checker`) and is loaded in the
sandboxed process that decides about one output: no process is started, and `exit` jumps back instead of ending it.

Limits first: the compiler itself runs outside the sandbox, with its time, memory and output bounded, on source that is
part of the data set. A checker needs a scratch folder, which the tiers T2 and T1n have: on others it says so
(`ProblemError`) and never "wrong answer". Input, answer and output together must fit into the scratch folder (16 MiB).
Warnings of g++ are not shown. Destructors that `exit` would run are not run.
"""

import base64
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from pot_agent.errors import DatasetError

COMPILER = "g++"
COMPILE_SECONDS = 120
_BOUNDS = f"ulimit -t {COMPILE_SECONDS} && ulimit -v {4 << 20} && ulimit -f {256 << 10}"
"""CPU seconds, KiB of memory, and blocks of 512 bytes of a file: 4 GiB and 128 MiB."""
MAX_LIBRARY_BYTES = 8 << 20
ENTRY = "pot_check_one"
STANDARDS = {"CPP03": "c++03", "CPP11": "c++11", "CPP14": "c++14", "CPP17": "c++17", "CPP20": "c++20"}
_SOURCES = (".cpp", ".cc", ".cxx")

_SHIM = """
#include <csetjmp>
static std::jmp_buf back;
static volatile int status;
extern "C" {
[[noreturn]] void leave(int code) { status = code; std::longjmp(back, 1); }
[[noreturn]] void __wrap_exit(int code) { leave(code); }
[[noreturn]] void __wrap__exit(int code) { leave(code); }
[[noreturn]] void __wrap__Exit(int code) { leave(code); }
[[noreturn]] void __wrap_quick_exit(int code) { leave(code); }
}
extern "C" int pot_checker_main(int argc, char **argv);
extern "C" int ENTRY(int argc, char **argv) { return setjmp(back) ? status : pot_checker_main(argc, argv); }
"""

_CHECKER = """
import base64, ctypes, os, tempfile, zlib

LIBRARY = {library!r}

def check(input, expected, output):
    folder = tempfile.gettempdir()
    names = [os.path.join(folder, name).encode() for name in ("input", "output", "answer", "checker.so")]
    texts = [text.encode("utf-8", "surrogateescape") for text in (input, output, expected)]
    try:
        for name, data in zip(names, [*texts, zlib.decompress(base64.b85decode(LIBRARY))]):
            with open(name, "wb") as file:
                file.write(data)
    except OSError as error:
        return f"a checker in C++ needs a scratch folder (tiers T2, T1n) with room for its files: {{error}}"
    os.dup2(os.open(names[1], os.O_RDONLY), 0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 1)
    arguments = (ctypes.c_char_p * 5)(b"checker", *names[:3], None)
    library = ctypes.CDLL(names[3].decode())
    return library.{entry}(4, arguments) == 0
"""


def python_checker(files: Sequence[Path], standard: str = "CPP17") -> str:
    """Source of a checker for `StdinTest`: the program is given input, output and answer, and accepts by status 0."""
    sources = tuple((path.name, _read(path)) for path in files)
    if not any(name.endswith(_SOURCES) for name, _ in sources):
        named = ", ".join(name for name, _ in sources) or "nothing"
        raise DatasetError(f"a checker in C++ needs a .cpp file, got {named}", value=named)
    if standard not in STANDARDS:
        raise DatasetError(f"checkers can be in {', '.join(STANDARDS)}, got {standard!r}", value=standard)
    return _compiled(sources, STANDARDS[standard])


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DatasetError(f"the checker's source cannot be read: {error}", value=str(path)) from error


@lru_cache(maxsize=256)
def _compiled(sources: tuple[tuple[str, bytes], ...], standard: str) -> str:
    with tempfile.TemporaryDirectory(prefix="pot-checker-") as name:
        folder = Path(name)
        for source, text in sources:
            (folder / source).write_bytes(text)
        (folder / "pot_shim.cpp").write_text(_SHIM.replace("ENTRY", ENTRY), encoding="utf-8")
        library = _compile(folder, [source for source, _ in sources if source.endswith(_SOURCES)], standard)
    if len(library) > MAX_LIBRARY_BYTES:
        raise DatasetError(f"the compiled checker has {len(library):,} bytes", value=len(library))
    packed = base64.b85encode(zlib.compress(library, 9)).decode("ascii")
    return _CHECKER.format(library=packed, entry=ENTRY)


def _compile(folder: Path, sources: Sequence[str], standard: str) -> bytes:
    compiler = shutil.which(COMPILER)
    if compiler is None:
        raise DatasetError(
            f"a checker is in C++ and there is no {COMPILER} to compile it: install it (`apt install g++`)",
            value=COMPILER,
        )
    # The linker gives the checker's `main` a second name: C++ lets nobody call the first.
    command = [compiler, f"-std={standard}", "-O2", "-w", "-s", "-shared", "-fPIC"]
    command += ["-Wl,--defsym=pot_checker_main=main"]
    command += [f"-Wl,--wrap={name}" for name in ("exit", "_exit", "_Exit", "quick_exit")]
    command += ["-o", "checker.so", "pot_shim.cpp", *sources]
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", f'{_BOUNDS} && exec "$0" "$@"', *command],
            cwd=folder,
            env={"PATH": str(Path(compiler).parent), "TMPDIR": str(folder), "LC_ALL": "C"},
            capture_output=True,
            timeout=COMPILE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise DatasetError(f"the checker {sources[0]} could not be compiled: {error}", value=sources[0]) from error
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip()[:500]
        raise DatasetError(f"the checker {sources[0]} does not compile: {said}", value=sources[0])
    return (folder / "checker.so").read_bytes()
