"""The thought tree: selection, expansion, backup and priors, against numbers worked by hand."""

import copy
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pot_agent import tree as t
from pot_agent.errors import SearchError


def thought(program: int, reward: float, logprob: float | None = -1.0, sample: str = "s") -> t.Thought:
    return t.Thought(program=program, sample=sample, logprob=logprob, reward=reward)


def grown(*rewards: float) -> t.Tree:
    return t.expand(t.new_tree(), 0, [thought(i, r) for i, r in enumerate(rewards)], iteration=1, version=0)


def test_the_first_selection_is_the_root() -> None:
    assert t.select(t.new_tree()) == 0


def test_an_expansion_adds_a_visit_and_the_reward_to_itself_and_every_ancestor() -> None:
    tree = grown(0.0, 0.5, 1.0)
    tree = t.expand(tree, 2, [thought(9, 0.25)], iteration=2, version=1)
    assert [node["visits"] for node in tree] == [4, 1, 2, 1, 1]
    assert [node["value_sum"] for node in tree] == [1.75, 0.0, 0.75, 1.0, 0.25]
    assert t.value(tree[2]) == 0.375
    assert t.value(tree[2], backup="max") == 0.5
    assert [node["depth"] for node in tree] == [0, 1, 1, 1, 2]
    assert tree[4]["iteration"] == 2
    assert tree[4]["version"] == 1


def test_puct_is_the_paper_formula_worked_by_hand() -> None:
    tree = t.expand(t.new_tree(), 0, [thought(0, 0.5, -0.2), thought(1, 0.25, -0.9)], iteration=1, version=0)
    prior = math.exp(-0.2) / (math.exp(-0.2) + math.exp(-0.9))
    siblings = t.children(tree, 0)
    assert t.puct(tree, 1, siblings, c_puct=1.414, backup="mean") == pytest.approx(
        0.5 + 1.414 * prior * math.sqrt(2) / 2
    )
    assert t.select(tree) == 1


def test_exploration_leads_away_from_a_visited_child_when_its_prior_is_low() -> None:
    tree = t.expand(t.new_tree(), 0, [thought(0, 0.5, -4.0), thought(1, 0.4, -0.1)], iteration=1, version=0)
    assert t.select(tree, c_puct=1.414) == 2
    assert t.select(tree, c_puct=0.0) == 1


def test_max_backup_prefers_the_child_with_the_better_descendant() -> None:
    tree = grown(0.5, 0.4)
    tree = t.expand(tree, 2, [thought(7, 0.9), thought(8, 0.0)], iteration=2, version=0)
    assert t.path(tree, t.select(tree, c_puct=0.0, backup="mean") or 0)[0] == 1
    assert t.path(tree, t.select(tree, c_puct=0.0, backup="max") or 0)[0] == 2


def test_ties_go_to_the_child_that_came_first() -> None:
    assert t.select(grown(0.0, 0.0, 0.0)) == 1


def test_identical_programs_are_one_node_whose_visits_add_up() -> None:
    thoughts = [thought(5, 0.5, -1.0, "a"), thought(5, 0.5, -3.0, "b"), thought(6, 0.0, -2.0, "c")]
    tree = t.expand(t.new_tree(), 0, thoughts, iteration=1, version=0)
    assert len(tree) == 3
    assert tree[1]["visits"] == 2
    assert tree[1]["samples"] == ["a", "b"]
    assert tree[0]["visits"] == 3
    assert tree[1]["prior"] == tree[2]["prior"] == 0.5  # mean(-1, -3) == -2


def test_the_same_program_below_another_node_is_another_node() -> None:
    tree = t.expand(grown(0.5, 0.0), 1, [thought(0, 0.5)], iteration=2, version=0)
    assert tree[3]["parent"] == 1
    assert tree[3]["program"] == tree[1]["program"]


def test_a_commit_joins_its_siblings_and_their_prior() -> None:
    tree = grown(0.5, 0.5)
    tree = t.expand(tree, 0, [thought(9, 0.5, -1.0, "greedy")], iteration=1, version=1, committed=True)
    assert tree[3]["committed"]
    assert not tree[1]["committed"]
    assert [tree[i]["prior"] for i in (1, 2, 3)] == pytest.approx([1 / 3] * 3)


def test_a_commit_that_repeats_a_sibling_marks_that_node() -> None:
    tree = t.expand(grown(0.5, 0.0), 0, [thought(0, 0.5, -1.0, "greedy")], iteration=1, version=1, committed=True)
    assert len(tree) == 3
    assert tree[1]["committed"]
    assert tree[1]["visits"] == 2


def test_priors_are_uniform_where_a_log_probability_is_unknown() -> None:
    tree = t.expand(t.new_tree(), 0, [thought(0, 0.0, -9.0), thought(1, 0.0, None)], iteration=1, version=0)
    assert [node["prior"] for node in tree[1:]] == [0.5, 0.5]


def test_priors_can_be_rescored_under_another_adapter() -> None:
    tree = t.with_priors(grown(0.0, 0.0), 0, {1: -1.0, 2: -2.0})
    assert tree[1]["prior"] == pytest.approx(1 / (1 + math.exp(-1)))


def test_nodes_at_the_depth_limit_are_terminal_and_exhausted_subtrees_are_skipped() -> None:
    tree = grown(0.9, 0.0)
    tree = t.expand(tree, 1, [thought(5, 0.9), thought(6, 0.9)], iteration=2, version=0)
    assert t.select(tree, max_depth=2) == 2  # everything below node 1 is at depth 2
    tree = t.expand(tree, 2, [thought(7, 0.0)], iteration=3, version=0)
    assert t.select(tree, max_depth=2) is None
    assert t.select(tree, max_depth=3) is not None


def test_the_search_can_start_from_a_committed_node() -> None:
    tree = t.expand(grown(0.9, 0.0), 2, [thought(5, 0.1)], iteration=2, version=0)
    assert t.select(tree, root=2) == 3
    assert t.select(tree, root=2, max_depth=2) is None


def test_the_best_thought_is_the_earliest_of_the_best() -> None:
    assert t.best(t.new_tree()) is None
    assert t.best(grown(0.2, 0.7, 0.7)) == 2


def test_the_path_leads_from_the_roots_child_to_the_node() -> None:
    tree = t.expand(grown(0.5, 0.4), 2, [thought(5, 0.1)], iteration=2, version=0)
    assert t.path(tree, 3) == [2, 3]
    assert t.path(tree, 0) == []


def test_the_frontier_is_what_can_still_be_expanded_best_first() -> None:
    tree = t.expand(grown(0.5, 0.6), 1, [thought(5, 1.0)], iteration=2, version=0)
    assert t.frontier(tree) == [3, 2]
    assert t.frontier(tree, max_depth=2) == [2]


@pytest.mark.parametrize("reward", [-0.1, 1.1, math.nan])
def test_a_reward_outside_0_to_1_is_an_error_that_names_it(reward: float) -> None:
    with pytest.raises(SearchError, match=str(reward)):
        grown(reward)


def test_a_node_that_is_not_there_is_an_error() -> None:
    with pytest.raises(SearchError, match="7"):
        t.expand(t.new_tree(), 7, [thought(0, 0.0)], iteration=1, version=0)
    with pytest.raises(SearchError, match="7"):
        t.select(t.new_tree(), root=7)


@given(st.lists(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 1)), min_size=1, max_size=4), max_size=12))
def test_no_step_changes_its_input_and_the_counts_stay_consistent(steps: list[list[tuple[int, float]]]) -> None:
    tree = t.new_tree()
    samples = 0
    for iteration, step in enumerate(steps, start=1):
        leaf = t.select(tree, max_depth=3)
        if leaf is None:
            break
        before = copy.deepcopy(tree)
        thoughts = [thought(100 * iteration + p, r) for p, r in step]
        new = t.expand(tree, leaf, thoughts, iteration=iteration, version=0)
        assert tree == before
        tree, samples = new, samples + len(step)
        assert tree[0]["visits"] == samples
        for index, node in enumerate(tree):
            below = t.children(tree, index)
            if below:
                assert sum(tree[child]["prior"] for child in below) == pytest.approx(1.0)
                assert node["visits"] >= sum(tree[child]["visits"] for child in below)
            assert node["parent"] < index
