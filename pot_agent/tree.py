"""The thought tree: flat records with integer parents, and pure functions over them (paper section 3.2).

A tree is a list of `Node`; a node's index is its name, `parents` come before children, and the root is node 0. No
function changes what it is given: each returns a new list that shares the records it left alone. Programs live outside
(`Node.program` is an index), so that a text that was written twice is kept and run once.

One iteration reads: `select` a leaf, `expand` it with executed thoughts, each of which is backed up to the root.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from typing_extensions import TypedDict

from pot_agent.errors import SearchError

ROOT = 0
NO_PARENT = -1

Tree = list["Node"]


class Node(TypedDict):
    """One state of the search: the problem at the root, else the thought that led here. Plain JSON types."""

    parent: int
    depth: int
    program: int
    """Index of the program, -1 at the root."""
    samples: list[str]
    """Ids of the samples that wrote this program here; a commit's is among them."""
    logprobs: list[float]
    """Mean log-probability per token of each of those samples, where the policy knows it."""
    committed: bool
    """Whether a greedy commit wrote it."""
    iteration: int
    version: int
    """Adapter version that first wrote it."""
    reward: float
    prior: float
    """P(s, a) among its siblings, commit included."""
    visits: int
    value_sum: float
    value_max: float


class Thought(TypedDict):
    """An executed thought, on its way into the tree."""

    program: int
    sample: str
    logprob: float | None
    reward: float


def new_tree() -> Tree:
    """A tree of the root alone."""
    return [
        Node(
            parent=NO_PARENT,
            depth=0,
            program=-1,
            samples=[],
            logprobs=[],
            committed=False,
            iteration=0,
            version=0,
            reward=0.0,
            prior=1.0,
            visits=0,
            value_sum=0.0,
            value_max=0.0,
        )
    ]


def children(tree: Sequence[Node], index: int) -> list[int]:
    """Indices of the node's children, in the order in which they came."""
    return [child for child, node in enumerate(tree) if node["parent"] == index]


def path(tree: Sequence[Node], index: int) -> list[int]:
    """Indices from the root's child down to `index`; empty for the root."""
    found = []
    while index != ROOT:
        found.append(index)
        index = tree[index]["parent"]
    return found[::-1]


def value(node: Node, *, backup: Literal["mean", "max"] = "mean") -> float:
    """Q: the mean (or the max) of the rewards backed up through the node; 0 before any."""
    if not node["visits"]:
        return 0.0
    return node["value_sum"] / node["visits"] if backup == "mean" else node["value_max"]


def puct(
    tree: Sequence[Node], index: int, siblings: Sequence[int], *, c_puct: float, backup: Literal["mean", "max"]
) -> float:
    """`Q(s, a) + C * P(s, a) * sqrt(sum_b N(s, b)) / (1 + N(s, a))`, the sum over all siblings b."""
    node = tree[index]
    total = sum(tree[sibling]["visits"] for sibling in siblings)
    return value(node, backup=backup) + c_puct * node["prior"] * math.sqrt(total) / (1 + node["visits"])


def is_exhausted(tree: Sequence[Node], *, max_depth: int) -> list[bool]:
    """For each node, whether nothing below it can be expanded: it is at `max_depth`, or all its children are so."""
    exhausted = [node["depth"] >= max_depth for node in tree]
    open_children = [0] * len(tree)
    has_children = [False] * len(tree)
    for index in range(len(tree) - 1, 0, -1):  # children come after their parents
        exhausted[index] = exhausted[index] or (has_children[index] and not open_children[index])
        parent = tree[index]["parent"]
        has_children[parent] = True
        open_children[parent] += not exhausted[index]
    exhausted[ROOT] = exhausted[ROOT] or (has_children[ROOT] and not open_children[ROOT])
    return exhausted


def select(
    tree: Sequence[Node],
    *,
    root: int = ROOT,
    c_puct: float = 1.414,
    max_depth: int = 8,
    backup: Literal["mean", "max"] = "mean",
) -> int | None:
    """The leaf that PUCT leads to from `root`, or None when every subtree is exhausted.

    Ties go to the child that came first, so selection is deterministic.
    """
    if not 0 <= root < len(tree):
        raise SearchError(f"root must be a node of the tree (0 to {len(tree) - 1}), got {root}", value=root)
    exhausted = is_exhausted(tree, max_depth=max_depth)
    if exhausted[root]:
        return None
    index = root
    while siblings := children(tree, index):
        candidates = [child for child in siblings if not exhausted[child]]
        index = max(candidates, key=lambda child: puct(tree, child, siblings, c_puct=c_puct, backup=backup))
    return index


def expand(
    tree: Tree, leaf: int, thoughts: Iterable[Thought], *, iteration: int, version: int, committed: bool = False
) -> Tree:
    """The tree with executed thoughts below `leaf`, each backed up, and the siblings' priors renewed.

    A program that a child of `leaf` already holds adds its visit and its sample to that child: one node, one execution.
    """
    if not 0 <= leaf < len(tree):
        raise SearchError(f"leaf must be a node of the tree (0 to {len(tree) - 1}), got {leaf}", value=leaf)
    grown = list(tree)
    by_program = {grown[child]["program"]: child for child in children(grown, leaf)}
    for thought in thoughts:
        _check_reward(thought["reward"])
        index = by_program.get(thought["program"])
        if index is None:
            index = len(grown)
            by_program[thought["program"]] = index
            grown.append(_node_of(thought, leaf, grown[leaf]["depth"] + 1, iteration, version))
        known = [] if thought["logprob"] is None else [thought["logprob"]]
        node = grown[index].copy()
        node["samples"] = [*node["samples"], thought["sample"]]
        node["logprobs"] = [*node["logprobs"], *known]
        node["committed"] = node["committed"] or committed
        grown[index] = node
        grown = back_up(grown, index, thought["reward"])
    return with_priors(grown, leaf)


def _check_reward(reward: float) -> None:
    if not 0.0 <= reward <= 1.0:
        raise SearchError(f"reward must be in [0, 1], got {reward}", value=reward)


def _node_of(thought: Thought, parent: int, depth: int, iteration: int, version: int) -> Node:
    return Node(
        parent=parent,
        depth=depth,
        program=thought["program"],
        samples=[],
        logprobs=[],
        committed=False,
        iteration=iteration,
        version=version,
        reward=thought["reward"],
        prior=1.0,
        visits=0,
        value_sum=0.0,
        value_max=0.0,
    )


def back_up(tree: Tree, index: int, reward: float) -> Tree:
    """The tree with one visit and `reward` (in [0, 1]) added to the node and to each of its ancestors."""
    _check_reward(reward)
    backed = list(tree)
    for ancestor in _upwards(tree, index):
        node = backed[ancestor].copy()
        node["visits"] += 1
        node["value_sum"] += reward
        node["value_max"] = max(node["value_max"], reward)
        backed[ancestor] = node
    return backed


def _upwards(tree: Sequence[Node], index: int) -> Iterator[int]:
    while index != NO_PARENT:
        yield index
        index = tree[index]["parent"]


def with_priors(tree: Tree, parent: int, logprobs: dict[int, float] | None = None) -> Tree:
    """The tree with P(s, a) of the children of `parent` set anew.

    P is the softmax over all siblings of the length-normalised log-probability: that of a node is the mean over the
    samples that wrote it, or `logprobs` by node where given (rescored under another adapter). Where any is unknown,
    P is uniform.
    """
    siblings = children(tree, parent)
    scores = [_mean(tree[child]["logprobs"]) for child in siblings]
    if logprobs is not None:
        scores = [logprobs.get(child) for child in siblings]
    known = [score for score in scores if score is not None]
    priors = softmax(known) if len(known) == len(siblings) else [1.0 / len(siblings)] * len(siblings)
    renewed = list(tree)
    for child, prior in zip(siblings, priors, strict=True):
        renewed[child] = tree[child].copy()
        renewed[child]["prior"] = prior
    return renewed


def _mean(numbers: Sequence[float]) -> float | None:
    return sum(numbers) / len(numbers) if numbers else None


def softmax(scores: Sequence[float]) -> list[float]:
    """Softmax of finite scores; minus infinity is allowed unless all are."""
    if not scores:
        return []
    top = max(scores)
    if not math.isfinite(top):
        raise SearchError(f"log-probabilities must be finite, got {top}", value=top)
    weights = [math.exp(score - top) for score in scores]
    return [weight / sum(weights) for weight in weights]


def best(tree: Sequence[Node]) -> int | None:
    """The executed thought with the best reward, the earliest of equals; None before any."""
    return max(range(1, len(tree)), key=lambda index: tree[index]["reward"], default=None)


def frontier(tree: Sequence[Node], *, max_depth: int = 8) -> list[int]:
    """Leaves that can still be expanded, best value first."""
    inner = {node["parent"] for node in tree}
    leaves = [i for i, node in enumerate(tree) if i not in inner and node["depth"] < max_depth]
    return sorted(leaves, key=lambda index: (-value(tree[index]), index))
