"""Every way of solving a problem, one graph a file over the same parts, chosen by name.

A method is a module of this package that defines `METHOD` (a `pot_agent.methods.base.Method` of the module's name);
parts that methods share are in `pot_agent.methods.parts`. Nothing else has to be told of a new one. A method's module
is imported when the method is asked for, and none of those here loads LangGraph before it builds its graph.
"""

import difflib
import importlib
import pkgutil
from collections.abc import Iterator, Mapping

from pot_agent.errors import ConfigError
from pot_agent.methods.base import Method

__all__ = ["METHODS", "Method", "find"]

_NOT_METHODS = {"base"}


class _Methods(Mapping[str, Method]):
    """The methods by name, each imported when it is looked up."""

    def __getitem__(self, name: str) -> Method:
        if name not in self._names():
            raise KeyError(name)
        module = importlib.import_module(f"{__name__}.{name}")
        method = getattr(module, "METHOD", None)
        if not isinstance(method, Method) or method.name != name:
            raise ConfigError(
                f"{module.__file__} must define METHOD, a Method of the name {name!r}, and has {method!r}; parts that "
                "methods share belong into pot_agent/methods/parts",
                value=name,
            )
        return method

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    @staticmethod
    def _names() -> list[str]:
        found = (module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg)
        return sorted(set(found) - _NOT_METHODS)


METHODS: Mapping[str, Method] = _Methods()
"""Every method by name; its names are known without importing any."""


def find(name: str) -> Method:
    """The method of that name; dashes count as underscores. Raises `ConfigError` naming those there are."""
    wanted = name.strip().lower().replace("-", "_") if isinstance(name, str) else name
    if wanted in METHODS:
        return METHODS[wanted]
    close = difflib.get_close_matches(str(wanted), list(METHODS), n=1)
    hint = f"did you mean {close[0]}? There" if close else "there"
    raise ConfigError(f"no method {name!r}; {hint} are {', '.join(METHODS)}", value=name)
