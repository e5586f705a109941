"""Policy of Thoughts as LangGraph Studio opens it; `POT_MODEL` or `POT_POLICY` choose what samples and learns."""

from pot_agent.graph import create_pot_agent
from pot_agent.settings import Settings

_settings = Settings.from_env()

graph = create_pot_agent(policy=_settings.policy, model=_settings.model)
