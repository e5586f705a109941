"""PoT's search without learning, with any chat model as the proposer; `POT_CHAT_MODEL` names it.

Without that variable the model of `graphs/pot.py` proposes (`POT_MODEL`, `POT_POLICY`), and nothing is learned either.
"""

from pot_agent.config import PotConfig
from pot_agent.graph import create_pot_agent
from pot_agent.policy.chat_model import ChatModelPolicy
from pot_agent.settings import Settings

_settings = Settings.from_env()
_chat_model = ChatModelPolicy(_settings.chat_model) if _settings.chat_model else None

graph = create_pot_agent(
    policy=_chat_model or _settings.policy,
    model=_settings.model,
    config=PotConfig.quick(learn=False),
    name="search",
)
