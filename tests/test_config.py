"""Configuration: the paper's figures, checks at the door, and the environment."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

from pot_agent.config import GrpoConfig, LoraConfig, PotConfig, SearchConfig
from pot_agent.errors import ConfigError
from pot_agent.settings import Settings


def test_the_paper_budget_is_the_papers() -> None:
    config = PotConfig.paper()
    s, g = config.search, config.grpo_for(None)
    assert (s.iterations, s.width, s.max_depth, s.max_new_tokens) == (20, 3, 8, 2048)
    assert (s.temperature, s.c_puct, config.program_seconds) == (0.7, 1.414, 10.0)
    assert (g.learning_rate, g.clip, g.epochs, g.beta, g.reference_sync_steps) == (1e-4, 0.3, 3, 0.02, 10)
    assert (config.lora.rank, config.lora.alpha, config.lora.dropout) == (8, 16.0, 0.0)


def test_the_quick_budget_is_six_iterations_of_eight_thoughts_of_256_tokens() -> None:
    search = PotConfig.quick().search
    assert (search.iterations, search.width, search.max_new_tokens, search.max_prompt_tokens) == (6, 8, 256, 2048)


def test_the_profile_decides_the_loss_and_small_models_learn_faster_in_corrected() -> None:
    assert PotConfig().grpo_for(135_000_000).learning_rate == 1e-4
    corrected = PotConfig(profile="corrected")
    assert corrected.grpo_for(135_000_000).learning_rate == 1e-3
    assert corrected.grpo_for(4_000_000_000).learning_rate == 1e-4
    assert corrected.grpo_for(None).loss_normalisation == "token"
    assert PotConfig(grpo=GrpoConfig(epochs=9), profile="corrected").grpo_for(1).epochs == 9


def test_flat_changes_reach_the_search_and_none_leaves_a_field_alone() -> None:
    config = PotConfig.quick(iterations=2, seed=5, width=None, learn=None)
    assert (config.search.iterations, config.search.width, config.seed, config.learn) == (2, 8, 5, True)
    assert PotConfig(max_seconds=3.0).change(max_seconds=None).max_seconds is None


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("iterations", -1),
        ("iterations", 0),
        ("iterations", 2.5),
        ("iterations", True),
        ("width", 0),
        ("max_seconds", -3.0),
        ("max_seconds", math.nan),
        ("temperature", 0.0),
        ("temperature", math.inf),
        ("max_new_tokens", 0),
        ("seed", -1),
        ("seed", 2**63),
        ("profile", "mine"),
        ("prior", "mine"),
        ("commit", "push"),
        ("program_seconds", 0),
    ],
)
def test_a_setting_that_cannot_be_is_an_error_with_its_name_and_value(change: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=change) as caught:
        PotConfig.quick(**{change: value})
    assert repr(value) in str(caught.value)


def test_an_unknown_setting_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(ConfigError, match=r"no such setting: iteration; .*iterations"):
        PotConfig.quick(iteration=3)


@pytest.mark.parametrize(
    "bad",
    [
        {"epochs": 0},
        {"clip": 1.0},
        {"beta": -0.1},
        {"kl": "k4"},
        {"std": "bessel"},
        {"learning_rate": 0.0},
        {"learning_rate": math.nan},
        {"adam_betas": (0.9, 1.0)},
        {"adam_betas": (0.9999999999999999, 0.9)},
        {"learning_rate": 1e31},
        {"constant_length": 2**63},
        {"importance_cap": 0.0},
    ],
)
def test_a_loss_that_cannot_be_is_an_error(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        GrpoConfig(**bad)


@pytest.mark.parametrize(
    "bad",
    [
        {"rank": 0},
        {"alpha": 0.0},
        {"alpha": 10**400},
        {"alpha": 1e31},
        {"dropout": 1.0},
        {"dropout": "x"},
        {"targets": ()},
        {"targets": 5},
        {"targets": ("q_proj", 5)},
        {"targets": ("q_proj",) * 1025},
    ],
    ids=lambda bad: next(iter(bad)),
)
def test_an_adapter_that_cannot_be_is_an_error(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        LoraConfig(**bad)


@pytest.mark.parametrize("text", ["q_proj", "", "([a-z0-9._]+)+!"])
def test_targets_as_text_mean_all_linear_and_nothing_else(text: str) -> None:
    assert LoraConfig(targets="all-linear").targets == "all-linear"
    with pytest.raises(ConfigError, match="targets must be `all-linear` or a list") as caught:
        LoraConfig(targets=text)
    assert caught.value.value == text


def test_targets_as_a_list_are_the_same_as_a_tuple() -> None:
    assert LoraConfig(targets=["q_proj"]) == LoraConfig(targets=("q_proj",))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (GrpoConfig, "clip", "a"),
        (GrpoConfig, "adam_betas", 5),
        (GrpoConfig, "adam_betas", ("a", 0.9)),
        (GrpoConfig, "normalise_advantage", "no"),
        (GrpoConfig, "mask_truncated", 5),
        (PotConfig, "learn", "no"),
        (PotConfig, "lora", 5),
        (PotConfig, "grpo", "x"),
        (PotConfig, "search", 5),
        (PotConfig.quick, "search", 5),
        (PotConfig.quick, "lora", 5),
        (Settings, "port", "x"),
        (Settings, "model", 5),
        (Settings, "home", 5),
        (Settings, "state", "x"),
        (Settings, "host", 5),
        (Settings, "chat_model", 5),
        (Settings, "device", 5),
    ],
)
def test_a_value_of_the_wrong_type_is_an_error_with_its_name_and_value(kind: Any, name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"(?i){name} must be") as caught:
        kind(**{name: value})
    assert repr(value) in str(caught.value)
    assert caught.value.value == value


def test_a_token_of_the_wrong_type_does_not_show_in_the_error() -> None:
    with pytest.raises(ConfigError, match="POT_TOKEN must be text") as caught:
        Settings(token=b"hunter2")  # type: ignore[arg-type]
    assert "hunter2" not in f"{caught.value} {caught.value.value}"


def test_configurations_are_frozen_and_keyword_only() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        SearchConfig().width = 4  # type: ignore[misc]
    with pytest.raises(TypeError):
        SearchConfig(3)  # type: ignore[misc]


def test_a_configuration_is_plain_json() -> None:
    json.dumps(PotConfig(grpo=GrpoConfig(), lora=LoraConfig(targets=("q_proj",))).to_dict())


def test_settings_come_from_variables_named_after_the_fields() -> None:
    settings = Settings.from_env(
        {"POT_MODEL": "m", "POT_PORT": "99", "POT_HOME": "~/x", "POT_LEASE_SECONDS": "5", "POT_DEVICE": "", "PORT": "1"}
    )
    assert (settings.model, settings.port, settings.lease_seconds, settings.device) == ("m", 99, 5.0, None)
    assert settings.home == Path.home() / "x"
    assert settings.state is None


def test_the_state_folder_and_its_age_come_from_variables() -> None:
    settings = Settings.from_env({"POT_STATE": "~/kept", "POT_STATE_SECONDS": "60"})
    assert (settings.state, settings.state_seconds) == (Path.home() / "kept", 60.0)
    with pytest.raises(ConfigError, match="POT_STATE_SECONDS must be a finite number of seconds above 0"):
        Settings(state_seconds=0)


@pytest.mark.parametrize(("name", "value"), [("POT_PORT", "http"), ("POT_PORT", "0"), ("POT_DTYPE", "int4")])
def test_a_variable_that_cannot_be_read_is_an_error_that_names_it(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        Settings.from_env({name: value})


def test_a_token_does_not_show_in_the_settings() -> None:
    assert "hunter2" not in repr(Settings.from_env({"POT_TOKEN": "hunter2"}))


def test_the_example_file_is_every_setting_at_its_default() -> None:
    lines = (Path(__file__).parent.parent / ".env.example").read_text().splitlines()
    given = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert list(given) == [f"POT_{field.name.upper()}" for field in dataclasses.fields(Settings)]
    assert Settings.from_env(given) == Settings()
    assert all(value == value.strip().strip("'\"") for value in given.values()), "docker takes them as they stand"


def test_more_tokens_are_separated_by_commas_and_do_not_show_either() -> None:
    settings = Settings.from_env({"POT_TOKENS": "hunter2, hunter3 ,"})
    assert settings.tokens == ("hunter2", "hunter3")
    assert "hunter" not in repr(settings)
