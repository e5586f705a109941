"""What may import what: the core is light, dependencies point one way, and the environment has one reader."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pot_agent

ROOT = Path(pot_agent.__file__).parent
HEAVY = ("torch", "transformers", "peft", "langgraph", "langchain_core", "fastapi", "vllm")


def loaded_by(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(' '.join(sorted({{name.split('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd="/")
    return set(done.stdout.splitlines()[-1].split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert not loaded_by("import pot_agent").intersection(HEAVY)


def test_the_commands_help_loads_nothing_heavy() -> None:
    code = (
        "from typer.testing import CliRunner\nfrom pot_agent.cli import app\n"
        "for args in (['--help'], ['solve', '--help'], ['serve', '--help']):\n"
        "    assert CliRunner().invoke(app, args).exit_code == 0"
    )
    assert not loaded_by(code).intersection(HEAVY)


def test_building_a_graph_loads_no_torch() -> None:
    loaded = loaded_by("from pot_agent import create_pot_agent\ncreate_pot_agent()")
    assert not loaded.intersection({"torch", "transformers", "peft", "fastapi"})


def test_the_sandbox_and_the_http_client_load_no_torch() -> None:
    loaded = loaded_by("import pot_agent.sandbox.local, pot_agent.policy.client, pot_agent.policy.chat_model")
    assert not loaded.intersection({"torch", "transformers", "peft", "fastapi"})


def test_every_public_name_can_be_imported() -> None:
    for name in pot_agent.__all__:
        assert getattr(pot_agent, name) is not None


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="create_pot"):
        pot_agent.create_pot  # noqa: B018


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


MODULES = sorted(ROOT.rglob("*.py"))


def test_the_package_never_imports_the_graphs_or_the_tools() -> None:
    for path in MODULES:
        assert not {name.split(".")[0] for name in imports_of(path)} & {"graphs", "tools", "tests", "examples"}, path


def test_only_the_settings_read_the_environment() -> None:
    allowed = {"settings.py", "sandbox/boot.py", "sandbox/zygote.py"}  # the last two empty the sandboxed process's own
    for path in MODULES:
        text = path.read_text()
        if "os.environ" in text or "getenv" in text:
            assert path.relative_to(ROOT).as_posix() in allowed, path


LAYERS = (
    ("errors", "version"),
    (
        "changes",
        "config",
        "settings",
        "problem",
        "programs",
        "pysource",
        "require",
        "spans",
        "statement",
        "stopping",
        "testcases",
        "tree",
        "values",
    ),
    ("prompts", "generated", "state", "sandbox", "policy", "events", "durable", "tracing", "advice"),
    ("ticking",),
    ("rewards", "solution"),
    ("handles", "node", "run"),
    ("group",),
    ("ending",),
    ("nodes",),
    ("approval",),
    ("graph",),
    ("integrations", "methods"),
    ("bench",),
    ("shell",),
    ("cli",),
)


def layer_of(module: str) -> int:
    part = module.removeprefix("pot_agent").lstrip(".").split(".")[0]
    return next((index for index, names in enumerate(LAYERS) if part in names), -1)


def test_dependencies_point_one_way() -> None:
    for path in MODULES:
        relative = path.relative_to(ROOT)
        if relative.as_posix() == "__init__.py":
            continue
        own = layer_of(f"pot_agent.{relative.parts[0].removesuffix('.py')}")
        assert own >= 0, f"{relative} is in no layer"
        tree = ast.parse(path.read_text())
        for node in tree.body:  # imports inside functions are late on purpose
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pot_agent."):
                assert layer_of(node.module or "") <= own, f"{relative} imports {node.module}"


def test_there_are_no_import_circles() -> None:
    names = {path: ".".join(("pot_agent", *path.relative_to(ROOT).with_suffix("").parts)) for path in MODULES}
    names = {path: name.removesuffix(".__init__") for path, name in names.items()}
    needs: dict[str, set[str]] = {}
    for path, name in names.items():
        top = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ImportFrom) and node.module]
        named = [(str(node.module), f"{node.module}.{alias.name}") for node in top for alias in node.names]
        needs[name] = {full if full in names.values() else module for module, full in named}
        needs[name] &= set(names.values()) - {name}
    while needs:
        free = {name for name, others in needs.items() if not others & needs.keys()}
        assert free, f"these import each other: {sorted(needs)}"
        needs = {name: others for name, others in needs.items() if name not in free}


def test_graph_modules_do_not_postpone_annotations() -> None:
    for name in ("graph", "nodes", "node", "state", "run"):
        assert "from __future__ import annotations" not in (ROOT / f"{name}.py").read_text()
