"""Self-distillation in the graph: each thought is taught by the policy that has read its own feedback."""

from typing import Any

from pot_agent import PotConfig, create_pot_agent
from pot_agent.config import GrpoConfig
from pot_agent.policy.local import LocalPolicy
from tests.fakes import ScriptedPolicy, block
from tests.test_group_end_to_end import ONE, Worded, tiny  # noqa: F401

PROBLEM = {"problem": "Write add(a, b).", "tests": ["assert add(1, 2) == 3", "assert add(2, 2) == 4"]}
WRONG = [block(f"def add(a, b):\n    return {100 + number}") for number in range(99)]


def ran(policy: Any, sandbox: Any, distil: float, **changes: Any) -> dict[str, Any]:
    grpo = GrpoConfig(distil=distil, learning_rate=1e-2)
    config = PotConfig.quick(grpo=grpo, **{"iterations": 2, "width": 3, **changes})
    return dict(create_pot_agent(policy, sandbox, config=config).invoke(PROBLEM)["solution"])


def test_a_thoughts_teacher_reads_its_program_and_what_it_got_wrong(sandbox: Any) -> None:
    policy = ScriptedPolicy(WRONG)
    ran(policy, sandbox, 1.0, iterations=1)
    (call,) = policy.of("internalize")
    assert list(call["teachers"]) == list(call["rewards"])
    for number, messages in enumerate(call["teachers"].values()):
        read = "\n".join(message["content"] for message in messages)
        assert f"return {100 + number}" in read
        assert f"Got:\n| {100 + number}" in read
        assert read.count("def add") == 1


def test_without_distillation_nobody_is_taught(sandbox: Any) -> None:
    policy = ScriptedPolicy(WRONG)
    ran(policy, sandbox, 0.0)
    assert [call["teachers"] for call in policy.of("internalize")] == [None, None]


def test_one_visible_test_that_every_thought_fails_moves_the_adapter(tiny: Any, sandbox: Any) -> None:  # noqa: F811
    for distil, updates in ((0.0, 0), (1.0, 1)):
        with Worded(str(tiny), threads=1) as policy:
            assert isinstance(policy, LocalPolicy)
            policy.script, policy.written = iter(WRONG), ""
            config = PotConfig.quick(
                iterations=1,
                width=3,
                max_new_tokens=12,
                max_prompt_tokens=480,
                grpo=GrpoConfig(distil=distil, learning_rate=1e-2),
            )
            solution = create_pot_agent(policy, sandbox, config=config).invoke(ONE)["solution"]
        assert (solution["updates"], solution["adapter_version"]) == (updates, updates)
