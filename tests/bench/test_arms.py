"""Arms from text: what each knob changes, equal budgets, names, and what is refused."""

from dataclasses import fields

import pytest

from pot_agent.bench.arms import parse_arm
from pot_agent.config import GrpoConfig, LoraConfig, PotConfig, SearchConfig
from pot_agent.errors import ConfigError
from pot_agent.methods.base import programs_of

BASE = PotConfig.quick()
PAPER = PotConfig.paper()


def test_a_method_alone_has_the_base_configuration() -> None:
    arm = parse_arm("pot", BASE)
    assert (arm.name, arm.method.name, arm.config) == ("pot", "pot", BASE)


@pytest.mark.parametrize("base", [BASE, PAPER], ids=["quick", "paper"])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 8, 16, 32])
def test_k_changes_the_width_at_as_many_programs_as_whole_iterations_can_spend(base: PotConfig, k: int) -> None:
    arm = parse_arm(f"pot:k={k}", base)
    assert arm.config.search.width == k
    assert arm.programs == arm.config.search.iterations * (k + 1)
    assert 0 <= programs_of(base) - arm.programs < k + 1


def test_a_base_that_all_widths_divide_gives_exactly_equal_budgets() -> None:
    base = BASE.change(iterations=16, width=3)
    assert {parse_arm(f"{method}:k={k}", base).programs for method in ("pot", "mcts") for k in (1, 3, 7, 15, 31)} == {
        64
    }


def test_k_with_iterations_and_width_leave_iterations_as_they_are_told() -> None:
    given = parse_arm("pot:k=8,iterations=20", PAPER).config.search
    assert (given.width, given.iterations) == (8, 20)
    assert parse_arm("pot:width=8", PAPER).config.search.iterations == 20


def test_the_best_of_twenty_of_the_paper() -> None:
    assert parse_arm("best_of_n:iterations=5,width=3", BASE).programs == 20
    assert parse_arm("zero_shot", BASE).programs == parse_arm("few_shot_cot", BASE).programs == 1


def test_the_rank_keeps_the_adapters_scale_unless_alpha_is_given() -> None:
    assert parse_arm("pot:rank=4", BASE).config.lora == LoraConfig(rank=4, alpha=8.0)
    assert parse_arm("pot:rank=16,alpha=16", BASE).config.lora == LoraConfig(rank=16, alpha=16.0)


def test_the_rank_and_learning_rate_of_the_paper_are_arms() -> None:
    arm = parse_arm("pot:rank=4,lr=5e-5", PAPER)
    assert arm.config.grpo == GrpoConfig(learning_rate=5e-5)
    assert arm.config.lora.rank == 4
    assert arm.config.search == PAPER.search


def test_profiles_and_commit_modes_are_arms() -> None:
    assert parse_arm("pot:profile=corrected", BASE).config.grpo_for(10) == GrpoConfig.corrected(parameters=10)
    assert parse_arm("pot:profile=paper", BASE).config.grpo_for(10) == GrpoConfig()
    assert parse_arm("mcts:commit=reroot", BASE).config.search.commit == "reroot"


def test_a_profile_replaces_a_loss_that_the_base_has() -> None:
    base = BASE.change(grpo=GrpoConfig(learning_rate=1.0))
    assert parse_arm("pot:beta=0.1", base).config.grpo == GrpoConfig(learning_rate=1.0, beta=0.1)
    assert parse_arm("pot:profile=corrected", base).config.grpo_for(10) == GrpoConfig.corrected(parameters=10)


def test_a_change_to_the_corrected_loss_keeps_the_learning_rate_of_the_models_size() -> None:
    arm = parse_arm("pot:profile=corrected,beta=0.0", BASE, parameters=135_000_000)
    assert arm.config.grpo is not None
    assert (arm.config.grpo.learning_rate, arm.config.grpo.beta) == (1e-3, 0.0)
    with pytest.raises(ConfigError, match="learning rate by the model's size, which is not known here: give lr beside"):
        parse_arm("pot:profile=corrected,beta=0.0", BASE)
    known = parse_arm("pot:profile=corrected,beta=0.0,lr=1e-4", BASE).config.grpo
    assert known == GrpoConfig(learning_rate=1e-4, beta=0.0, loss_normalisation="token", importance_cap=2.0)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (" POT : lr=0.0001 , k=8 ", "pot:k=8,lr=0.0001"),
        ("pot:k=8,learning_rate=1e-4", "pot:k=8,lr=0.0001"),
        ("best-of-n:width=3,iterations=5", "best_of_n:iterations=5,width=3"),
        ("pot:max_seconds=none,learn=off", "pot:learn=false,max_seconds=none"),
        ("pot:targets=q_proj/v_proj,adam_betas=0.8/0.9", "pot:adam_betas=0.8/0.9,targets=q_proj/v_proj"),
    ],
)
def test_names_are_canonical(text: str, name: str) -> None:
    arm = parse_arm(text, BASE)
    assert arm.name == name
    again = parse_arm(name, BASE)
    assert (again.name, again.config) == (arm.name, arm.config)


def test_every_field_but_the_nested_ones_and_the_seed_is_a_knob() -> None:
    with pytest.raises(ConfigError) as refused:
        parse_arm("pot:nothing=1", BASE)
    for cls in (PotConfig, SearchConfig, LoraConfig, GrpoConfig):
        for field in fields(cls):
            assert (f" {field.name}" in str(refused.value)) is (field.name not in ("search", "lora", "grpo", "seed"))


def test_no_two_configurations_have_a_field_of_the_same_name() -> None:
    names = [field.name for cls in (PotConfig, SearchConfig, LoraConfig, GrpoConfig) for field in fields(cls)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nope", "no method 'nope'"),
        ("pot:", "no knob after the colon"),
        ("pot:k", "'k' is no knob; write name=value"),
        ("pot:k=8,", "'' is no knob"),
        ("pot:k=", "'k=' is no knob"),
        ("pot:k=x", "k must be a whole number, got 'x'"),
        ("pot:k=0", "width must be a whole number, 1 or more, got 0"),
        ("pot:k=3,k=4", "gives k twice"),
        ("pot:lr=1,learning_rate=2", "gives learning_rate twice"),
        ("pot:k=3,width=4", "gives k and width"),
        ("pot:lr=nan", "learning_rate must be a finite number, got 'nan'"),
        ("pot:lr=-1", "learning_rate must be a finite number above 0, got -1"),
        ("pot:commit=root", "commit must be one of child, reroot, got 'root'"),
        ("pot:learn=maybe", "learn must be true or false, got 'maybe'"),
        ("pot:seed=3", "seed is no knob of an arm"),
        ("pot:search=3", "no knob 'search'"),
        ("pot:adam_betas=0.9", "adam_betas must be two"),
        ("zero_shot:k=8", "k means nothing to zero_shot"),
        ("zero_shot:temperature=1", "temperature means nothing to zero_shot"),
        ("few_shot_cot:end_at_block=on", "end_at_block means nothing to few_shot_cot"),
        ("best_of_n:c_puct=1", "c_puct means nothing to best_of_n"),
        ("mcts:rank=4", "rank means nothing to mcts"),
        ("mcts:learn=true", "learn means nothing to mcts"),
        ("self_certainty:profile=paper", "profile means nothing to self_certainty"),
        ("persistent:learn=false", "learn means nothing to persistent"),
    ],
)
def test_what_cannot_be_is_refused_with_its_value(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_arm(text, BASE)
