"""Hidden tests that stay where they are until they are run: some benchmarks inflate to gigabytes.

Limits first: they are read again for each use, and an error of reading (a file that has gone, or has changed in length)
comes then.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from pot_agent.errors import DatasetError
from pot_agent.problem import Test


@dataclass(frozen=True)
class LazyTests(Sequence[Test]):
    """Some of the tests that `read` gives, in order. It can be sent to another process where `read` can."""

    read: Callable[[], Sequence[Test]]
    total: int
    """How many `read` gives."""
    kept: tuple[int, ...]
    """Which of them; the others repeat a visible test, or each other."""

    @classmethod
    def of(cls, read: Callable[[], Sequence[Test]], kept: Sequence[Test], tests: Sequence[Test]) -> "LazyTests":
        """Those of `tests` (what `read` gives now) that are also in `kept`."""
        chosen = set(map(id, kept))
        places = tuple(index for index, test in enumerate(tests) if id(test) in chosen)
        return cls(read, len(tests), places)

    def __len__(self) -> int:
        return len(self.kept)

    def __iter__(self) -> Iterator[Test]:
        tests = self.read()
        if len(tests) != self.total:
            raise DatasetError(
                f"there are {len(tests)} hidden tests where there were {self.total}: the data has changed since it was "
                "loaded; load it again",
                value=len(tests),
            )
        return iter([tests[index] for index in self.kept])

    @overload
    def __getitem__(self, index: int) -> Test: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Test, ...]: ...
    def __getitem__(self, index: int | slice) -> Test | tuple[Test, ...]:
        return tuple(self)[index]

    def __repr__(self) -> str:
        return f"<{len(self)} tests>"
