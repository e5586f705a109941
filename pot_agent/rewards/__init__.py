"""What a thought is worth."""

from pot_agent.rewards.base import Evaluation, Reward
from pot_agent.rewards.execution import ExecutionReward

__all__ = ["Evaluation", "ExecutionReward", "Reward"]
