"""The Dockerfile, as far as can be checked without Docker: what it copies exists, what it runs and sets is known."""

import json
import os
import re
import shlex
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from typer.main import get_command

from pot_agent.cli import app
from pot_agent.errors import ConfigError
from pot_agent.settings import ENVIRONMENT_PREFIX, Settings

ROOT = Path(__file__).parent.parent
INSTRUCTIONS = {"ARG", "FROM", "RUN", "COPY", "ENV", "WORKDIR", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK"}
INSTRUCTIONS |= {"STOPSIGNAL", "ENTRYPOINT", "CMD"}


def instructions(text: str) -> list[tuple[str, str]]:
    """Name and rest of each instruction, continued lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    found = [line.strip().partition(" ") for line in joined.splitlines() if line.strip()]
    return [(name, rest.strip()) for name, _, rest in found]


DOCKERFILE = instructions((ROOT / "Dockerfile").read_text())


def of(name: str) -> list[str]:
    return [rest for found, rest in DOCKERFILE if found == name]


def environment() -> dict[str, str]:
    return dict(pair.split("=", 1) for rest in of("ENV") for pair in shlex.split(rest))


def sources() -> list[str]:
    return [source for rest in of("COPY") for source in shlex.split(rest)[:-1]]


def test_every_line_is_an_instruction_and_the_first_builds_on_an_argument() -> None:
    assert {name for name, _ in DOCKERFILE} <= INSTRUCTIONS
    assert [name for name, _ in DOCKERFILE][:2] == ["ARG", "FROM"]
    assert of("FROM") == ["${BASE}"]
    assert "BASE=python:3.12-slim" in of("ARG")


@pytest.mark.parametrize("source", sources())
def test_what_is_copied_exists_and_is_not_ignored(source: str) -> None:
    assert (ROOT / source).exists()
    ignored = False
    for rule in (ROOT / ".dockerignore").read_text().split("\n"):
        if rule and not rule.startswith("#") and fnmatch(source, rule.lstrip("!")):
            ignored = not rule.startswith("!")
    assert not ignored


def test_what_the_wheel_needs_is_copied() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {"pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]}
    needed |= set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    assert needed <= set(sources())


def test_the_default_extras_are_the_projects() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (extras,) = (rest.partition("=")[2] for rest in of("ARG") if rest.startswith("EXTRAS="))
    assert set(extras.split(",")) <= set(known)
    (constraints,) = (rest.partition("=")[2] for rest in of("ARG") if rest.startswith("CONSTRAINTS="))
    assert (ROOT / constraints).is_file()


def test_the_command_is_one_that_the_program_has() -> None:
    command = [*json.loads(of("ENTRYPOINT")[-1]), *json.loads(of("CMD")[-1])]
    assert command == ["pot", "serve"]
    assert command[1] in get_command(app).commands  # type: ignore[attr-defined]
    run = [rest for rest in of("RUN") if "pot setup" in rest]
    assert run
    assert "setup" in get_command(app).commands  # type: ignore[attr-defined]


def test_the_variables_are_settings_and_can_be_read() -> None:
    given = {name: value for name, value in environment().items() if name.startswith(ENVIRONMENT_PREFIX)}
    assert {name.removeprefix(ENVIRONMENT_PREFIX).lower() for name in given} <= {
        field.name for field in fields(Settings)
    }
    settings = Settings.from_env(given)
    assert settings.host == "0.0.0.0"
    assert str(settings.port) == of("EXPOSE")[0]
    assert {str(settings.state), "/var/cache/pot"} == set(json.loads(of("VOLUME")[0]))
    assert Path("/var/cache/pot") in settings.home.parents


def test_such_a_server_refuses_to_start_without_a_token() -> None:
    from pot_agent.policy.server import listen

    given = {name: value for name, value in environment().items() if name.startswith(ENVIRONMENT_PREFIX)}
    with pytest.raises(ConfigError, match="POT_TOKEN"):
        listen(Settings.from_env(given))


def test_the_server_does_not_run_as_root() -> None:
    names = [name for name, _ in DOCKERFILE]
    assert of("USER") == ["pot"]
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert not any(name in ("RUN", "COPY") for name in names[names.index("USER") :])


@pytest.fixture
def health() -> Iterator[tuple[str, list[int]]]:
    """A server that answers /health with the first of these statuses; its port."""
    answers = [200]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(answers[0] if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield str(server.server_port), answers
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_health_check_passes_on_an_answer_and_fails_on_any_other(health: tuple[str, list[int]]) -> None:
    port, answers = health
    _, _, probe = of("HEALTHCHECK")[0].partition("CMD ")
    interpreter, *rest = json.loads(probe)
    assert interpreter == "python3"

    def code() -> int:
        command = [sys.executable, *rest]
        return subprocess.run(command, env=os.environ | {"POT_PORT": port}, stderr=subprocess.DEVNULL).returncode

    assert code() == 0
    answers[0] = 503
    assert code() != 0
