"""The parts of a policy that import torch, imported when a policy is built and not before."""

from typing import TYPE_CHECKING, Any

from pot_agent.errors import MissingExtraError
from pot_agent.policy.state_folder import StateFolder

if TYPE_CHECKING:
    from pot_agent.policy.engine import Engine
    from pot_agent.policy.store import Store


def store_of(folder: StateFolder, engine: "Engine") -> "Store":
    """Sessions on the disk for this engine."""
    from pot_agent.policy.store import Store  # torch

    return Store(folder, engine)


def import_engine() -> Any:
    """The module of the engine. Raises `MissingExtraError` where what it needs is not installed."""
    try:
        from pot_agent.policy import engine
    except ImportError as error:
        raise MissingExtraError(
            f'a model in this process needs the extra `local`: pip install "policy-of-thoughts[local]" '
            f"({error.name or error} is missing); or use a policy server (--policy URL, POT_POLICY)",
            value=error.name,
        ) from error
    return engine
