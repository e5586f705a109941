"""A manifest says what a run was, and refuses to be another's."""

import json
import platform
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

import pot_agent
from pot_agent.bench import manifest as manifests
from pot_agent.bench.manifest import FILE, check_same, differences, machine, manifest_of, model_of, versions
from pot_agent.bench.record import Manifest
from pot_agent.errors import RunFolderError
from pot_agent.policy.local import LocalPolicy
from tests.bench.running import CONFIG, MODEL, arm, plan, task, tasks
from tests.fakes import ScriptedPolicy
from tests.tiny import make_tiny_model


def made(**changes: Any) -> Manifest:
    """As it is read from a file."""
    found = plan(Path("somewhere"), [arm("pot"), arm("pot:k=1")]).manifest
    return Manifest(**json.loads(json.dumps({**found, **changes})))


def test_it_has_all_that_a_run_is() -> None:
    found = made()
    assert TypeAdapter(Manifest).validate_python(found) == found
    assert found["data"]["ids"] == ["add/0", "add/1", "add/2"]
    assert (found["data"]["count"], found["data"]["sha256"], found["seeds"]) == (3, "0", [0])
    assert list(found["methods"]) == ["pot", "pot:k=1"]
    assert found["methods"]["pot"]["config"] == json.loads(json.dumps(CONFIG.to_dict()))
    assert found["methods"]["pot"]["grpo"]["learning_rate"] > 0
    assert found["versions"]["policy-of-thoughts"] == pot_agent.__version__
    assert found["versions"]["python"] == platform.python_version()
    assert {"torch", "transformers", "peft", "langgraph"} <= set(found["versions"])
    assert found["machine"]["cores"] >= 1
    assert found["machine"]["memory_gb"] > 0
    assert found["created"].endswith("+00:00")


def test_a_model_in_this_process_has_a_digest_of_its_weights(tmp_path: Path) -> None:
    digests = []
    for seed in (0, 1):
        with LocalPolicy(str(make_tiny_model(tmp_path / str(seed), seed=seed)), threads=1) as policy:
            about = model_of(policy)
            assert (about["parameters"], about["learns"]) == (policy.capabilities.parameters, True)
            digests.append(about["base_digest"])
    assert all(digests)
    assert digests[0] != digests[1]
    assert model_of(ScriptedPolicy([""]))["base_digest"] is None


def test_it_is_read_as_it_was_written_and_written_once(tmp_path: Path) -> None:
    assert manifests.read(tmp_path) is None
    written = made()
    assert manifests.write(tmp_path, written)
    assert not manifests.write(tmp_path, made(name="another"))
    assert manifests.read(tmp_path) == written
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    (tmp_path / FILE).write_text("{")
    with pytest.raises(RunFolderError, match="cannot be read"):
        manifests.read(tmp_path)


def test_another_machine_command_or_version_of_ray_is_the_same_run(tmp_path: Path) -> None:
    found = made()
    other = made(
        name="other",
        command=["elsewhere"],
        created="later",
        machine={**machine(), "host": "other"},
        estimate={"hours": 9},
        versions={**versions(), "ray": "0.1"},
    )
    check_same(tmp_path, found, other)
    check_same(tmp_path, other, found)


def test_another_version_of_what_decides_a_result_is_another_run(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r'versions\.torch: "0\.1" there, "[0-9.]+.*" now'):
        check_same(tmp_path, made(versions={**versions(), "torch": "0.1"}), made())


def test_what_differs_is_named_by_its_path_and_long_lists_are_cut(tmp_path: Path) -> None:
    assert differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3, "d": None}}) == ["a.c: 2 there, 3 now"]
    many = {f"k{number}": number for number in range(9)}
    with pytest.raises(RunFolderError, match="and 3 more") as raised:
        check_same(tmp_path, made(budget=many), made(budget={}))
    assert raised.value.value == [f"budget.k{number}: {number} there, null now" for number in range(9)]


def test_the_loss_that_a_model_of_that_size_gets_is_written_out() -> None:
    corrected = [arm("pot", CONFIG.change(profile="corrected"))]
    small, large = (
        manifest_of(
            name="x",
            command=[],
            benchmark="add",
            data={},
            choice=plan(Path("x"), corrected, tasks(1)).choice,
            arms=corrected,
            seeds=[0],
            model={**MODEL, "parameters": parameters},
            budget={},
        )["methods"]["pot"]["grpo"]["learning_rate"]
        for parameters in (10, 10**10)
    )
    assert small > large
    assert task(0).digest == "0"


def test_a_password_in_the_url_of_a_policy_is_not_kept() -> None:
    chosen = plan(Path("somewhere"), [arm("mcts")]).choice
    none: Any = {"data": {}, "model": {}, "budget": {}, "arms": [], "seeds": [0], "name": "r", "benchmark": "add"}
    command = ["pot", "bench", "--policy", "http://me:secret@gpu1:8719"]
    assert manifest_of(command=command, choice=chosen, **none)["command"][-1] == "http://***@gpu1:8719"
