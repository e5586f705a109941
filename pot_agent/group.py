"""The group that one update trains on: which samples are in it, and what each is worth to training.

Three remedies for groups in which every thought scores alike (nothing can be learned from those), all off by default:
*pooled groups* draw again at the same node, *generated tests* grade thoughts more finely, and *self-distillation* lets
the policy that has read a thought's feedback teach the one that has not. None is seen by the search: its rewards, the
best program, the feedback and the end of the run rest on the visible tests alone.

Limits: only samples of one prompt and one version are pooled, so a version that moved ends the pooling. Generated
tests are asked for once a group has not solved the problem, and never before: an easy problem pays nothing for them.
"""

from collections.abc import Sequence

from pot_agent import tree as thought_tree
from pot_agent.config import SearchConfig
from pot_agent.events import emit
from pot_agent.generated import is_askable, read_tests, request
from pot_agent.policy.base import Message
from pot_agent.problem import test_to_dict
from pot_agent.rewards.agreement import shares_of, training_reward
from pot_agent.run import Run, Update, prompt_room
from pot_agent.state import PotState
from pot_agent.tree import Tree


def draws_again(state: PotState, search: SearchConfig) -> bool:
    """Whether the last node is to be drawn at once more: nothing was learned there, and draws are left.

    It looks at the rewards and not at the update, so that search without learning draws the same thoughts.
    """
    rewards, receipt = state["rewards"].values(), state["receipt"]
    moved = receipt is not None and receipt["version"] != receipt["parent_version"]
    return bool(rewards) and len(set(rewards)) == 1 and state["draws"] < search.pool and not moved


def grade(run: Run) -> None:
    """Generated tests: written where they are needed for the first time, and run on every program without grades.

    It adds to `run.so_far` step by step, so that a run that is stopped here keeps what it has.
    """
    run.so_far |= _tests_asked_for(run)
    generated = run.so_far.get("generated", run.state["generated"])
    run.so_far["programs"] = run.grade(run.so_far["programs"], generated or [])


def training_rewards(run: Run, samples: Sequence[str]) -> dict[str, float]:
    """The training reward of each sample, all of thoughts below this iteration's leaf, in the order given.

    All are formed anew, those of earlier draws too: which generated tests count may have changed since.
    """
    tree, programs = run.so_far["tree"], run.so_far["programs"]
    node_of = nodes_below(tree, run.state["leaf"])
    shares, weight = shares_of([program["generated"] for program in programs]), run.config.generated_weight
    nodes = {sample: tree[node_of[sample]] for sample in samples}
    return {sample: training_reward(node["reward"], shares[node["program"]], weight) for sample, node in nodes.items()}


def teachers(run: Run) -> dict[str, list[Message]]:
    """For each sample of the group the prompt that teaches it: its own program with its feedback, read in hindsight.

    That is the prompt of its node, the one its children would be written from.
    """
    node_of = nodes_below(run.state["tree"], run.state["leaf"])
    return {sample: run.prompt(node_of[sample]).messages for sample in run.state["rewards"]}


def nodes_below(tree: Tree, leaf: int) -> dict[str, int]:
    """By sample id, the child of this leaf that it wrote."""
    below = thought_tree.children(tree, leaf)
    return {sample: child for child in below for sample in tree[child]["samples"]}


def _tests_asked_for(run: Run) -> Update:
    """What changes where the model is asked for tests now; nothing where it was asked before or is not to be."""
    config, problem, state = run.config, run.problem, run.state
    if not (config.generated_tests and config.learn) or state["generated"] is not None:
        return {}
    messages = request(problem, config.generated_tests) if is_askable(problem) else []
    room = prompt_room(run.handles, config)
    if not messages or run.handles.policy.count_tokens(messages) > room:
        reason = f"its statement leaves no room for it in {room:,} tokens" if messages else "they call no one function"
        return _without_tests(run, f"no tests can be asked of the model for this problem: {reason}")
    return _written(run, messages)


def _written(run: Run, messages: list[Message]) -> Update:
    asked, state = run.config.generated_tests, run.state
    before = run.seconds
    completions = run.sample(
        messages,
        "tests",
        iteration=state["iteration"],
        n=run.search.width,
        temperature=run.search.temperature,
        version=0,
    )
    kept = read_tests([completion.text for completion in completions], run.problem, most=asked)
    tokens = sum(completion.tokens for completion in completions)
    emit(
        "generated",
        iteration=state["iteration"],
        asked=asked,
        kept=len(kept),
        tokens=tokens,
        seconds=run.seconds - before,
    )
    update: Update = {"generated": [test_to_dict(test) for test in kept], "tokens": state["tokens"] + tokens}
    return update if kept else update | _without_tests(run, "the model wrote no test that can be used")


def _without_tests(run: Run, why: str) -> Update:
    message = f"{why}; the reward that is trained on is that of the visible tests alone"
    emit("warning", message=message)
    return {"generated": [], "warnings": [*run.state["warnings"], message]}
