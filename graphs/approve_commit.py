"""PoT with a person in it: before each commit the graph shows the program and waits for an answer.

Resume with `Command(resume="approve")`, `"next"` (leave it out, search on) or `"end"` (stop with the best so far);
`pot_agent/approval.py` says what each does. Studio brings the checkpointer that an interrupt needs.
"""

from pot_agent.graph import create_pot_agent
from pot_agent.settings import Settings

_settings = Settings.from_env()

graph = create_pot_agent(policy=_settings.policy, model=_settings.model, approve_commits=True, name="approve_commit")
